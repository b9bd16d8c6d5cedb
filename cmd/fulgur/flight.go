package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"fulgur/internal/capture/trigger"
	"fulgur/internal/session"
)

// incidentsName is the default directory of the files of a flight recorder.
const incidentsName = "incidents"

// flightFlags make a recording a flight recorder, which holds the last moments and writes them when a trigger
// fires.
type flightFlags struct {
	Keep      *seconds `placeholder:"TIME" group:"flight" help:"Hold only the last TIME, such as 30s, and write it to a file in the directory -o whenever a trigger fires. Samples are then taken 99 times per second, unless -F sets another rate."`
	On        []string `name:"on" sep:"none" placeholder:"TRIGGER" group:"flight" help:"Write a file when this happens; see above. Can be given several times. SIGUSR1 always writes one."`
	After     *seconds `placeholder:"TIME" group:"flight" help:"Record for this long after the trigger. Default: 5s."`
	Rest      *seconds `placeholder:"TIME" group:"flight" help:"Write at most one file in TIME; triggers in between only count. 0 writes one for each. Default: the time of --keep."`
	MaxFiles  *count   `placeholder:"N" group:"flight" help:"Maximum number of files in the directory: the oldest ones are removed. Default: ${flightFiles}."`
	MaxMemory *size    `placeholder:"BYTES" group:"flight" help:"Maximum memory for what is held, for example 256M; if it is reached, less time is held. Writing a file takes more. Default: ${flightMemory}M."`
}

// defaultAfter is the default of --after.
const defaultAfter = 5 * time.Second

// records reports whether the flags ask for a flight recorder.
func (f *flightFlags) records() bool { return f.Keep != nil }

// unused returns an error if a flag has no effect without --keep.
func (f *flightFlags) unused() error {
	if len(f.On) > 0 || f.After != nil || f.Rest != nil || f.MaxFiles != nil || f.MaxMemory != nil {
		return errors.New("--on, --after, --rest, --max-files and --max-memory need --keep, for example --keep 30s")
	}
	return nil
}

// flight translates the flags.
func (f *flightFlags) flight(o session.RecordOptions) (session.FlightOptions, error) {
	flight := session.FlightOptions{
		RecordOptions: o, Keep: time.Duration(*f.Keep), After: defaultAfter, Rest: time.Duration(*f.Keep),
		MaxFiles: int(orZero(f.MaxFiles)), MaxMemory: int64(orZero(f.MaxMemory)),
	}
	if f.After != nil {
		flight.After = time.Duration(*f.After)
	}
	if f.Rest != nil {
		flight.Rest = time.Duration(*f.Rest)
	}
	for _, text := range f.On {
		t, err := trigger.Parse(text)
		if err != nil {
			return flight, err
		}
		flight.Triggers = append(flight.Triggers, t)
	}
	return flight, nil
}

// triggerHelp lists the triggers for the help text.
func triggerHelp() string {
	var b strings.Builder
	width := 0
	for _, t := range trigger.Forms() {
		width = max(width, len(t[0]))
	}
	for _, t := range trigger.Forms() {
		fmt.Fprintf(&b, "    %-*s  %s\n", width, t[0], t[1])
	}
	return b.String()
}
