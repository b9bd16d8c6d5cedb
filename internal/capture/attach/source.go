package attach

import (
	"errors"
	"fmt"
	"slices"

	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/profile"
)

// DefaultMaxRate is the default limit of hits to measure per second and CPU. A hit takes a
// few microseconds, so this many are about a fifth of a CPU.
const DefaultMaxRate = 100_000

// Source implements [source.Source] for programs at the places of events.
type Source struct {
	source.Snapshots
	// Attached are the programs, in the order in which [Source.Attach] attaches them.
	Attached []*Program
}

// LoadEach loads the source of each event, and numbers the sources in order. Without events,
// it loads one for the zero event, which cannot be attached. own and all are the same
// sources, also those loaded before an error.
func LoadEach[E any, S source.Source](o probe.Options, events []E, load func(probe.Options, E) (S, error)) (own []S, all []source.Source, err error) {
	if len(events) == 0 {
		events = make([]E, 1)
	}
	for _, e := range events {
		s, err := load(o, e)
		if err != nil {
			return own, all, err
		}
		own, all = append(own, s), append(all, s)
		o.Source++
	}
	return own, all, nil
}

// Attach implements [source.Source].
func (s *Source) Attach(t target.Target) error {
	inFiles := func(p *Program) bool { return !p.event.Event.Kind.InKernel() }
	if slices.ContainsFunc(s.Attached, inFiles) {
		if err := uprobe.CheckTracers(t); err != nil {
			return err
		}
	}
	if err := s.FillTargets(t); err != nil {
		return err
	}
	for _, p := range s.Attached {
		if err := p.Attach(t); err != nil {
			return err
		}
	}
	return nil
}

// Begin begins to count the hits that the kernel misses.
func (s *Source) Begin() error { return s.each((*Program).Begin) }

// End ends that.
func (s *Source) End() error { return s.each((*Program).End) }

// Detach implements [source.Source].
func (s *Source) Detach() error { return errors.Join(s.each((*Program).Detach), s.Snapshots.Detach()) }

// each calls f for every program.
func (s *Source) each(f func(*Program) error) error {
	var errs []error
	for _, p := range s.Attached {
		errs = append(errs, f(p))
	}
	return errors.Join(errs...)
}

// Unreached says in which processes files are missing that were mapped during the measurement: the kernel
// finds out from a process's first thread whether to put a breakpoint into a file that the process maps.
func Unreached[S interface{ confined() []int }](sources []S) (lines []string) {
	var pids []int
	for _, s := range sources {
		pids = append(pids, s.confined()...)
	}
	slices.Sort(pids)
	pids = slices.DeleteFunc(slices.Compact(pids), func(pid int) bool { return !uprobe.FirstEnded(pid) })
	for _, pid := range pids[:min(len(pids), maxUnreached)] {
		lines = append(lines, fmt.Sprintf("the first thread of process %d ended during the measurement: files that the process mapped after that are missing; measure it again", pid))
	}
	if more := len(pids) - maxUnreached; more > 0 {
		lines = append(lines, fmt.Sprintf("other processes of which files are missing for that reason: %d", more))
	}
	return lines
}

// maxUnreached is the maximum number of processes that [Unreached] names.
const maxUnreached = 3

// confined returns the processes to which uprobes are confined.
func (s *Source) confined() (pids []int) {
	for _, p := range s.Attached {
		pids = append(pids, p.links.only...)
	}
	return pids
}

// Stats reads the kernel side's counters.
func (s *Source) Stats() (probe.Stats, error) {
	st, err := s.Probe.Stats()
	for _, p := range s.Attached {
		missed, missedErr := p.Missed()
		st.Losses[profile.LossSkipped] += missed
		err = errors.Join(err, missedErr)
	}
	return st, err
}

// Close detaches the programs and unloads the kernel side.
func (s *Source) Close() error { return errors.Join(s.each((*Program).Close), s.Snapshots.Close()) }
