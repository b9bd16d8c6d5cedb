package flame

import (
	"cmp"
	"slices"
	"time"

	"fulgur/internal/profile"
)

// timeStep is the unit of times on the page, and maxTimes the number of entries from which
// on it is coarser, to bound the page.
const (
	timeStep = 20 * time.Millisecond
	maxTimes = 4 << 20
)

// eventKind separates the samples of a page with times: each has one unit of weight.
type eventKind uint8

const (
	onCPU eventKind = iota
	offCPU
)

// timedProfile is the time that the threads of a recording spend on and off the CPU.
type timedProfile struct {
	*profile.Profile
	kinds []eventKind // by sample
	// step is the unit of times in nanoseconds, and steps the length of the recording.
	step  int64
	steps int
	// weights holds the nanoseconds of samples by time.
	weights map[timePlace]int64
}

// timedValues are the values of a page with times: the number of samples and waits, the
// time on and off the CPU, and their sum. Without waits there are only the first two.
var timedValues = []profile.ValueType{
	{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"},
	{Type: "off-cpu", Unit: "nanoseconds"}, {Type: "wall", Unit: "nanoseconds"},
}

// timePlace is a sample, by its index, during a step of the recording.
type timePlace struct{ sample, step uint32 }

// timeRow identifies a sample.
type timeRow struct {
	stack profile.StackID
	task  profile.Task
	cpu   int
	kind  eventKind
}

// newTimedProfile reads the events of a recording. Threads are separate if perThread is
// set. Waits have their reason as the last frame.
func newTimedProfile(line *profile.Timeline, perThread bool) (*timedProfile, error) {
	p := *line.Profile
	p.Functions, p.Frames, p.Stacks = slices.Clone(p.Functions), slices.Clone(p.Frames), slices.Clone(p.Stacks)
	p.Tasks, p.Samples = nil, nil
	p.ValueTypes = timedValues
	t := &timedProfile{Profile: &p, step: int64(timeStep), weights: map[timePlace]int64{}}
	t.steps = t.stepsOf(line.End - line.Start)
	rows := map[timeRow]uint32{}
	tasks := map[profile.Task]profile.TaskID{}
	row := func(r timeRow) uint32 {
		id, ok := rows[r]
		if !ok {
			task, known := tasks[r.task]
			if !known {
				task = profile.TaskID(len(p.Tasks))
				p.Tasks = append(p.Tasks, r.task)
				tasks[r.task] = task
			}
			id = uint32(len(p.Samples))
			rows[r] = id
			p.Samples = append(p.Samples, profile.Sample{Stack: r.stack, Task: task, CPU: r.cpu, Values: make([]int64, len(p.ValueTypes))})
			t.kinds = append(t.kinds, r.kind)
		}
		return id
	}
	notes := reasons{p: &p, line: line, frames: map[string]profile.FrameID{}, stacks: map[profile.StackID]profile.StackID{}}
	waits := false
	for id := range line.Threads {
		task := taskAt(line, profile.ThreadID(id), perThread)
		for e, err := range line.Events.OnCPU(profile.ThreadID(id)) {
			if err != nil {
				return nil, err
			}
			r := timeRow{e.Stack, task(e.Time), -1, onCPU}
			if p.Meta.PerCPU {
				r.cpu = e.CPU
			}
			s := row(r)
			p.Samples[s].Values[0]++
			p.Samples[s].Values[1] += e.Weight
			p.Samples[s].Values[3] += e.Weight
			t.add(s, e.Time-line.Start, 1, e.Weight)
		}
		for e, err := range line.Events.OffCPU(profile.ThreadID(id)) {
			if err != nil {
				return nil, err
			}
			s := row(timeRow{notes.on(e), task(e.Start), -1, offCPU})
			p.Samples[s].Values[0]++
			p.Samples[s].Values[2] += e.Duration
			p.Samples[s].Values[3] += e.Duration
			t.add(s, e.Start-line.Start, e.Duration, e.Duration)
			waits = true
		}
	}
	if !waits {
		p.ValueTypes = p.ValueTypes[:2]
		for i := range p.Samples {
			p.Samples[i].Values = p.Samples[i].Values[:2]
		}
	}
	return t, nil
}

// stepsOf returns the number of steps in a duration.
func (t *timedProfile) stepsOf(duration int64) int { return int(max(0, duration)/t.step) + 1 }

// add adds weight to a sample, evenly from a time of the recording on.
func (t *timedProfile) add(sample uint32, from, duration, weight int64) {
	end := min(from+max(duration, 1), int64(t.steps)*t.step)
	from = max(0, min(from, end-1))
	length := end - from
	var done int64
	for at := from; at < end; {
		next := min((at/t.step+1)*t.step, end)
		share := weight
		if next < end {
			share = int64(float64(weight) * (float64(next-from) / float64(length)))
		}
		t.weights[timePlace{sample, uint32(at / t.step)}] += share - done
		done = share
		at = next
	}
	for len(t.weights) > maxTimes && t.steps > 1 {
		coarse := make(map[timePlace]int64, len(t.weights)/2)
		for at, w := range t.weights {
			coarse[timePlace{at.sample, at.step / 2}] += w
		}
		t.weights = coarse
		t.step *= 2
		t.steps = (t.steps + 1) / 2
	}
}

// taskAt returns a function that returns a thread's task at a time, for times in
// ascending order.
func taskAt(line *profile.Timeline, id profile.ThreadID, perThread bool) func(at int64) profile.Task {
	thread := line.Threads[id]
	names := thread.Names
	if len(names) == 0 {
		names = line.Processes[thread.Process].Names
	}
	return func(at int64) profile.Task {
		task := profile.Task{PID: line.Processes[thread.Process].PID}
		if perThread {
			task.TID = thread.TID
		}
		if i, _ := slices.BinarySearchFunc(names, at+1, func(n profile.Name, at int64) int { return cmp.Compare(n.At, at) }); i > 0 {
			task.Comm = names[i-1].Name
		} else if len(names) > 0 {
			task.Comm = names[0].Name
		}
		return task
	}
}

// reasons puts the reasons of waits on their stacks.
type reasons struct {
	p      *profile.Profile
	line   *profile.Timeline
	frames map[string]profile.FrameID
	stacks map[profile.StackID]profile.StackID
}

// on returns the stack of a wait with its reason.
func (r *reasons) on(e profile.OffCPU) profile.StackID {
	reason := r.line.Reasons[e.Stack]
	switch {
	case e.State == profile.StateRunnable:
		reason = "preempted"
	case reason == "":
		reason = "off-cpu"
	}
	if s, ok := r.stacks[e.Stack]; ok && r.p.Stacks[s].Frame == r.frames[reason] {
		return s
	}
	frame, ok := r.frames[reason]
	if !ok {
		r.p.Functions = append(r.p.Functions, profile.Function{Name: "[" + reason + "]"})
		r.p.Frames = append(r.p.Frames, profile.Frame{Function: profile.FunctionID(len(r.p.Functions) - 1), Kind: profile.KindMarker})
		frame = profile.FrameID(len(r.p.Frames) - 1)
		r.frames[reason] = frame
	}
	r.p.Stacks = append(r.p.Stacks, profile.Stack{Parent: e.Stack, Frame: frame})
	s := profile.StackID(len(r.p.Stacks) - 1)
	r.stacks[e.Stack] = s
	return s
}

// timesTable is the table of times: for each row of samples its entries.
type timesTable struct {
	header  times
	counts  []uint64
	steps   []uint64 // since the row's previous entry
	weights []uint64 // divided by the scale
}

// times describes the table of times in the page's data.
type times struct {
	// Step is the unit of times in nanoseconds, Steps the length of the recording.
	Step  int64 `json:"step"`
	Steps int   `json:"steps"`
	// Entries is the number of entries, and Scale the divisor of their weights.
	Entries int   `json:"entries"`
	Scale   int64 `json:"scale"`
}

// table returns the table of times of rows. of is the row of each sample.
func (t *timedProfile) table(rows int, of []uint32) timesTable {
	sums := map[timePlace]int64{}
	for at, w := range t.weights {
		if w > 0 {
			sums[timePlace{of[at.sample], at.step}] += w
		}
	}
	places := make([]timePlace, 0, len(sums))
	var scale int64
	for at, w := range sums {
		places = append(places, at)
		for a := w; a != 0; {
			scale, a = a, scale%a
		}
	}
	scale = max(scale, 1)
	slices.SortFunc(places, func(a, b timePlace) int {
		return cmp.Or(cmp.Compare(a.sample, b.sample), cmp.Compare(a.step, b.step))
	})
	table := timesTable{header: times{t.step, t.steps, len(places), scale}, counts: make([]uint64, rows)}
	for i, at := range places {
		table.counts[at.sample]++
		step := uint64(at.step)
		if i > 0 && places[i-1].sample == at.sample {
			step -= uint64(places[i-1].step)
		}
		table.steps = append(table.steps, step)
		table.weights = append(table.weights, uint64(sums[at]/scale))
	}
	return table
}
