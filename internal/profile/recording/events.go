package recording

import (
	"cmp"
	"slices"

	"fulgur/internal/profile"
)

// event is an event of any kind.
type event struct {
	at    int64
	stack profile.StackID // with its note
	// ofProcess is set if the thread is unknown, but not its process.
	ofProcess bool
	// The amounts of the values that it adds to. Values that a profile lacks are left out.
	amounts []amount
}

// amount is an amount of a value.
type amount struct {
	of profile.ValueType
	n  int64
}

// The values of recordings.
var (
	samples     = profile.ValueType{Type: "samples", Unit: "count"}
	cpu         = profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
	wall        = profile.ValueType{Type: "wall", Unit: "nanoseconds"}
	blockIO     = profile.ValueType{Type: "block-io", Unit: "bytes"}
	blockIOTime = profile.ValueType{Type: "block-io-time", Unit: "nanoseconds"}
	faults      = profile.ValueType{Type: "faults", Unit: "count"}
)

// events calls f with all events of a thread, kind by kind. It reuses the event.
func (s stacks) events(id profile.ThreadID, f func(*event)) error {
	var e event
	of := func(at int64, stack profile.StackID, amounts ...amount) {
		e = event{at: at, stack: stack, ofProcess: e.ofProcess, amounts: append(e.amounts[:0], amounts...)}
		if !slices.ContainsFunc(amounts, func(a amount) bool { return a.of == samples }) {
			e.amounts = append(e.amounts, amount{samples, 1})
		}
		f(&e)
	}
	events, sampled := s.line.Events, s.line.Sampled
	for on, err := range events.OnCPU(id) {
		if err != nil {
			return err
		}
		if sampled == (profile.ValueType{}) {
			of(on.Time, on.Stack, amount{cpu, on.Weight}, amount{wall, on.Weight})
		} else {
			of(on.Time, on.Stack, amount{samplesOf(sampled), 1}, amount{sampled, on.Amount}, amount{wall, on.Amount})
		}
	}
	for w, err := range events.OffCPU(id) {
		if err != nil {
			return err
		}
		of(w.Start, s.wait(w), amount{profile.OffCPUTime, w.Duration}, amount{wall, w.Duration})
	}
	for r, err := range events.BlockIO(id) {
		if err != nil {
			return err
		}
		of(r.Queued, s.request(r), amount{blockIO, int64(r.Bytes)}, amount{blockIOTime, r.Completed - r.Queued})
	}
	for p, err := range events.Faults(id) {
		if err != nil {
			return err
		}
		of(p.Time, s.fault(p), amount{faults, p.Count})
	}
	for m, err := range events.Markers(id) {
		if err != nil {
			return err
		}
		typ := s.line.MarkerTypes[m.Type]
		value := typ.Value()
		e.ofProcess = typ.OfProcess
		of(m.Time, m.Stack, amount{samplesOf(value), 1}, amount{value, m.Amount(typ)})
	}
	return nil
}

// samplesOf returns the value that counts the samples of one of several events, see
// [profile.Collector.CountEvent].
func samplesOf(v profile.ValueType) profile.ValueType {
	return profile.ValueType{Type: v.Type + " samples", Unit: samples.Unit}
}

// taskAt returns a function that returns the task of a thread's event in the profile, or that of its process.
func taskAt(line *profile.Timeline, id profile.ThreadID, perThread bool) func(at int64, ofProcess bool) profile.Task {
	thread, process := line.Threads[id], line.Processes[line.Threads[id].Process]
	return func(at int64, ofProcess bool) profile.Task {
		task, names := profile.Task{PID: process.PID}, thread.Names
		if perThread && !ofProcess {
			task.TID = thread.TID
		}
		if ofProcess || len(names) == 0 {
			names = process.Names
		}
		i, _ := slices.BinarySearchFunc(names, at+1, func(n profile.Name, at int64) int { return cmp.Compare(n.At, at) })
		if len(names) > 0 {
			task.Comm = names[max(i-1, 0)].Name
		}
		return task
	}
}
