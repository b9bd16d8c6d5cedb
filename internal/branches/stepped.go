package branches

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/stepping"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
)

// steppedAtMost is the default maximum duration of stepping: about 100 000 branches
// of a busy thread at the default overhead.
const steppedAtMost = 5 * time.Minute

// stepped records by stepping.
type stepped struct {
	options stepping.Options
	stepper *stepping.Stepper
	members members

	reported bool          // whether an early end of stepping was reported
	marked   int           // number of samples up to the mark
	rest     []bolt.Sample // samples left at the end
}

func newStepped(o *Options) *stepped {
	s := &stepped{options: stepping.Options{MaxOverhead: o.MaxOverhead, BurstMax: o.BurstMax}}
	if s.options.MaxOverhead == 0 {
		s.options.MaxOverhead = stepping.DefaultOverhead
		if len(o.Command) > 0 {
			s.options.MaxOverhead = stepping.CommandOverhead
		}
	}
	if s.options.BurstMax == 0 {
		s.options.BurstMax = stepping.DefaultBurstMax
	}
	return s
}

func (s *stepped) String() string {
	return fmt.Sprintf("stepping each thread for at most %v at a time, with at most %s slowdown", s.options.BurstMax, s.overhead())
}

// overhead formats the maximum slowdown.
func (s *stepped) overhead() string {
	return percent(s.options.MaxOverhead)
}

// attach starts the stepper process. Named processes are stepped from now on, so
// that it fails at once if one cannot be stepped. A command is still traced by its
// launcher and has to wait.
func (s *stepped) attach(r *branchRun) error {
	var named []int
	if r.loop.Target.Scope == target.Processes {
		named = r.loop.Target.PIDs
	}
	// disable ends it in an orderly way, not a context.
	stepper, err := stepping.Start(context.Background(), named, s.options)
	if err != nil {
		return err
	}
	s.stepper = stepper
	s.members = members{
		target: r.loop.Target, wanted: r.spaces.maps, add: stepper.Add, drop: stepper.Drop,
		members: map[int]memberState{}, excluded: []int{os.Getpid(), stepper.PID(), stepping.InitPID},
	}
	for _, pid := range named {
		s.members.members[pid] = isStepped
	}
	handleRecord := r.tracker.HandleRecord
	r.tracker.HandleRecord = func(record perfevent.Record) {
		handleRecord(record)
		s.members.handleRecord(record)
	}
	return nil
}

func (s *stepped) end(r *branchRun) {
	r.loop.ReleaseFirst = true // the launcher must stop tracing the command before stepping
	r.loop.Limit = steppedAtMost
	if only := r.binaries.only; only != nil {
		r.loop.Enough = func() bool { return only.Sufficiency() >= sufficient }
	}
}

func (s *stepped) enable() error { return s.members.look() }

func (s *stepped) disable() error {
	s.stepper.Stop()
	for sample := range s.stepper.Samples() {
		s.rest = append(s.rest, sample)
	}
	return nil
}

func (s *stepped) targets() ([]int, error)  { return s.members.pids(), nil }
func (s *stepped) fds() []int               { return nil }
func (s *stepped) followCPUs(_ []int) error { return nil }

func (s *stepped) progress() string { return "" }

func (s *stepped) mark() (fill float64) {
	samples := s.stepper.Samples()
	s.marked = len(samples)
	return float64(s.marked) / float64(cap(samples))
}

func (s *stepped) read(add func(bolt.Sample) error) error {
	samples := s.rest
	s.rest = nil
	for range s.marked {
		if sample, ok := <-s.stepper.Samples(); ok {
			samples = append(samples, sample)
		}
	}
	s.marked = 0
	for _, sample := range samples {
		if err := add(sample); err != nil {
			return err
		}
	}
	return nil
}

func (s *stepped) tend() error {
	if err := s.stepper.Err(); err != nil && !s.reported {
		s.reported = true
		return err
	}
	return s.members.follow()
}

func (s *stepped) report(report *report) error {
	stats, refused := s.stepper.Stats()
	report.Stepping = newSteppingReport(stats)
	for _, r := range refused {
		report.Refused = append(report.Refused, r.Error())
	}
	if report.Samples == 0 && stats.Threads == 0 {
		report.nothing = "no process with the binary was found in time (stepping begins some milliseconds after a program starts)"
	}
	return nil
}

func (s *stepped) close() error {
	if s.stepper == nil {
		return nil
	}
	err := s.stepper.Close()
	if s.reported {
		return nil
	}
	return err
}

// StepperCommand is fulgur's hidden command that calls [RunStepper].
const StepperCommand = stepping.Subcommand

// RunStepper is the main function of the process that single-steps for [Measure]; see [stepping.Run].
func RunStepper(in io.Reader, out io.Writer) error { return stepping.Run(in, out) }
