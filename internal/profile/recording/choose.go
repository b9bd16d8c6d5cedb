package recording

import (
	"iter"

	"fulgur/internal/profile"
)

// Choice says what remains of the samples of a profile.
type Choice struct {
	// Profile has their tables.
	Profile *profile.Profile
	// Rows has, for each sample of the original profile, the index of the sample in Profile of which it is a part,
	// or -1 if it was left out.
	Rows []int
}

// Choose returns the events that remain of a recording that was read from a file: choose is given a profile with
// a sample for each stack and task that has events, all with amounts of 0. The tasks are threads if perThread is set.
// Stacks there end in notes, such as the reasons of waits. What a note says is part of the event, so it
// stays if the note is hidden. It fails if the events cannot be read.
func Choose(line *profile.Timeline, perThread bool, choose func(*profile.Profile) Choice) (*profile.Timeline, error) {
	p := *line.Profile
	ends := endsOf(&p)
	p.Samples = nil
	e := &chosenEvents{Events: line.Events, line: line, perThread: perThread, stacks: stacksOf(line), tasks: tasksOf(&p), rows: map[row]int{}}
	for id := range line.Threads {
		task := taskAt(line, profile.ThreadID(id), perThread)
		if err := e.stacks.events(profile.ThreadID(id), func(of *event) {
			at := row{of.stack, e.tasks.of(task(of.at, of.ofProcess))}
			if _, ok := e.rows[at]; ok {
				return
			}
			e.rows[at] = len(p.Samples)
			p.Samples = append(p.Samples, profile.Sample{
				Stack: at.stack, Task: at.task, CPU: -1, End: ends[at.stack], Values: make([]int64, len(p.ValueTypes)),
			})
		}); err != nil {
			return nil, err
		}
	}
	p.Tasks = e.tasks.list
	e.choice = choose(&p)
	c := *line
	c.Events = e
	left := *e.choice.Profile
	left.Tasks = line.Profile.Tasks
	c.Profile, c.Reasons = &left, nil
	return &c, nil
}

// chosenEvents are events that remain of a recording.
type chosenEvents struct {
	profile.Events
	line      *profile.Timeline
	perThread bool
	stacks    stacks
	tasks     tasks
	rows      map[row]int // indexes of the samples that were chosen from
	choice    Choice
}

// without returns a stack that remains, without the note that the original one has after another stack.
// noted reports whether it still has the note.
func (e *chosenEvents) without(stack, withNote, left profile.StackID) (without profile.StackID, noted bool) {
	if withNote == stack || left == 0 || e.choice.Profile.Stacks[left].Frame != e.line.Profile.Stacks[withNote].Frame {
		return left, false
	}
	return e.choice.Profile.Stacks[left].Parent, true
}

// chosen returns the new stack of an event with the stack of its sample, and false if the event was left out. noted
// reports whether it still has its note.
func (e *chosenEvents) chosen(stack, withNote profile.StackID, task profile.Task) (left profile.StackID, noted, ok bool) {
	id, ok := e.tasks.index[task]
	i, found := e.rows[row{withNote, id}]
	if !ok || !found || e.choice.Rows[i] < 0 {
		return 0, false, false
	}
	left, noted = e.without(stack, withNote, e.choice.Profile.Samples[e.choice.Rows[i]].Stack)
	return left, noted, true
}

// OnCPU implements [profile.Events].
func (e *chosenEvents) OnCPU(t profile.ThreadID) iter.Seq2[profile.OnCPU, error] {
	task := taskAt(e.line, t, e.perThread)
	return only(e.Events.OnCPU(t), func(s *profile.OnCPU) (ok bool) {
		s.Stack, _, ok = e.chosen(s.Stack, s.Stack, task(s.Time, false))
		return ok
	})
}

// OffCPU implements [profile.Events].
func (e *chosenEvents) OffCPU(t profile.ThreadID) iter.Seq2[profile.OffCPU, error] {
	task := taskAt(e.line, t, e.perThread)
	return only(e.Events.OffCPU(t), func(w *profile.OffCPU) bool {
		stack, noted, ok := e.chosen(w.Stack, e.stacks.wait(*w), task(w.Start, false))
		reason := e.line.Reason(*w)
		if !noted {
			reason = ""
		}
		w.Stack, w.Reason, w.WakerStack = stack, reason, 0
		return ok
	})
}

// BlockIO implements [profile.Events].
func (e *chosenEvents) BlockIO(t profile.ThreadID) iter.Seq2[profile.BlockIO, error] {
	task := taskAt(e.line, t, e.perThread)
	return only(e.Events.BlockIO(t), func(r *profile.BlockIO) (ok bool) {
		r.Stack, _, ok = e.chosen(r.Stack, e.stacks.request(*r), task(r.Queued, false))
		return ok
	})
}

// Faults implements [profile.Events].
func (e *chosenEvents) Faults(t profile.ThreadID) iter.Seq2[profile.Fault, error] {
	task := taskAt(e.line, t, e.perThread)
	return only(e.Events.Faults(t), func(f *profile.Fault) (ok bool) {
		f.Stack, _, ok = e.chosen(f.Stack, e.stacks.fault(*f), task(f.Time, false))
		return ok
	})
}

// Markers implements [profile.Events].
func (e *chosenEvents) Markers(t profile.ThreadID) iter.Seq2[profile.Marker, error] {
	task := taskAt(e.line, t, e.perThread)
	return only(e.Events.Markers(t), func(m *profile.Marker) (ok bool) {
		m.Stack, _, ok = e.chosen(m.Stack, m.Stack, task(m.Time, e.line.MarkerTypes[m.Type].OfProcess))
		return ok
	})
}
