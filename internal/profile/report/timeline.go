package report

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/recording"
)

// The states of threads.
const (
	stateRunning  = "running"
	stateRunnable = "runnable"
	stateWaiting  = "waiting"
)

// DefaultSlices and MaxSlices are the default and the maximum number of slices of a timeline.
const (
	DefaultSlices = 10
	MaxSlices     = 1000
)

// Slices are the equal slices of time of an answer, in seconds.
type Slices struct {
	// Start is the start of the first one since the beginning of the recording, and Length the length of each.
	Start  float64 `json:"start_seconds"`
	Length float64 `json:"seconds"`
	Count  int     `json:"count"`
	// Waits is set if the recording has waits, so that all states are known.
	Waits bool `json:"waits"`
}

// timeline lists the threads with their states over time.
func (a *asked) timeline() error {
	line := a.choice.Times
	if line == nil {
		return errors.New("the profile has no times")
	}
	states, waits, err := recording.StatesOf(line, a.choice.Slices)
	if err != nil {
		return err
	}
	length := max(line.End-line.Start, 1)
	a.Slices = &Slices{float64(a.choice.Offset) / 1e9, float64(length) / 1e9 / float64(a.choice.Slices), a.choice.Slices, waits}
	a.Value, a.Unit, a.Total = stateRunning, "nanoseconds", 0
	for _, s := range states {
		thread := line.Threads[s.Thread]
		process := line.Processes[thread.Process]
		names := thread.Names
		if len(names) == 0 {
			names = process.Names
		}
		row := Row{
			Process: process.PID, Thread: thread.TID, Task: profile.LastName(names), Amount: recording.Total(s.Running),
			States: map[string]float64{}, Over: map[string][]float64{},
		}
		for _, of := range []struct {
			state string
			times []int64
		}{{stateRunning, s.Running}, {stateRunnable, s.Runnable}, {stateWaiting, s.Waiting}} {
			if of.state != stateRunning && !waits {
				continue
			}
			row.States[of.state] = float64(recording.Total(of.times)) / float64(length)
			for _, n := range of.times {
				row.Over[of.state] = append(row.Over[of.state], float64(n)*float64(a.choice.Slices)/float64(length))
			}
		}
		a.Total += row.Amount
		a.Rows = append(a.Rows, row)
	}
	a.whole = a.Total
	return nil
}

// timelineHead says what the rows of a timeline are.
func (a *Answer) timelineHead() string {
	s := a.Slices
	text := fmt.Sprintf("Threads, busiest first, in percent of each of %d slices of %s", s.Count, describe.Quantity(int64(s.Length*1e9), "nanoseconds"))
	text += ", by its start in seconds"
	if !s.Waits {
		text += "; the profile has no waits, so the rest of the time is unknown (fulgur record has them)"
	}
	return text + ":"
}

// The columns of timelines besides the slices.
var (
	stateColumn = column{"state", true, func(r *Row) string { return r.State }}
	wholeColumn = column{"all", false, func(r *Row) string { return strconv.Itoa(roundPercent(r.States[r.State])) }}
)

// sliceColumns returns the columns of slices, with their starts.
func (a *Answer) sliceColumns() (list []column) {
	if a.Slices == nil {
		return nil
	}
	for i := range a.Slices.Count {
		start := a.Slices.Start + float64(i)*a.Slices.Length
		list = append(list, column{startText(start, a.Slices.Length), false, func(r *Row) string { return strconv.Itoa(roundPercent(r.Over[r.State][i])) }})
	}
	return list
}

// roundPercent returns a share in percent.
func roundPercent(share float64) int { return int(share*100 + 0.5) }

// startText returns a number of seconds with the digits that tell slices of a length apart.
func startText(at, length float64) string {
	digits := 0
	for unit := 1.0; digits < 9 && length < 10*unit; unit /= 10 {
		digits++
	}
	return strconv.FormatFloat(at, 'f', digits, 64)
}

// statesOf returns the rows of a timeline as text shows them: one for each state that a thread was in.
func statesOf(rows []Row) (list []Row) {
	for _, r := range rows {
		for i, state := range []string{stateRunning, stateRunnable, stateWaiting} {
			if i > 0 && !slices.ContainsFunc(r.Over[state], func(share float64) bool { return roundPercent(share) > 0 }) {
				continue
			}
			shown := r
			shown.State, shown.Continued = state, i > 0
			list = append(list, shown)
		}
	}
	return list
}
