package decode

import (
	"cmp"
	"container/heap"
	"iter"
	"math"
	"slices"

	"fulgur/internal/profile"
)

// firefoxTimes are the times of the samples of a Firefox profile.
type firefoxTimes struct {
	in     *firefoxProfile
	stacks []*firefoxStacks // by thread
	tables []*firefoxStacks // each of stacks once
}

// complete reports whether all samples have a time, which is not made up.
func (t *firefoxTimes) complete() bool {
	return !t.in.aggregated && !slices.ContainsFunc(t.in.threads, func(of firefoxThread) bool { return len(of.time) != len(of.stack) })
}

// cpuTime is the value of samples on the CPU.
var cpuTime = profile.ValueType{Type: "cpu", Unit: "nanoseconds"}

// Timeline implements [Times]. Samples of the threads are samples on the CPU, or
// periods off the CPU if they are idle time; the samples of pseudo-threads are markers with
// a weight.
func (t *firefoxTimes) Timeline(p *profile.Profile, stack func(profile.StackID) profile.StackID) *profile.Timeline {
	in := t.in
	e := &firefoxEvents{firefoxTimes: t, stack: stack, main: t.main(), types: map[profile.ValueType]profile.MarkerTypeID{}}
	if in.monotonic > 0 && in.monotonic < 1<<60 {
		e.base = int64(in.monotonic)
	}
	switch {
	case in.interval > 0:
		e.interval = nanoseconds(min(in.interval, maxInterval))
	case e.main != cpuTime:
		e.interval = t.distance(e.main)
	}
	line := &profile.Timeline{Profile: p, Interval: e.interval, Events: e, Reasons: t.reasons(stack)}
	if e.main != cpuTime {
		line.Sampled = e.main
	}
	e.addThreads(line)
	line.Start, line.End = t.span()
	line.Start, line.End = line.Start+e.base, line.End+e.base
	return line
}

// reasons returns the reasons of waits by their stacks without them. The first one of a stack
// counts.
func (t *firefoxTimes) reasons(stack func(profile.StackID) profile.StackID) map[profile.StackID]string {
	reasons := map[profile.StackID]string{}
	for _, s := range t.tables {
		for row := range s.rows {
			of, reason, ok := s.wait(int32(row))
			if _, isState := waitStates[reason]; !ok || isState {
				continue
			}
			if of = stack(of); reasons[of] == "" {
				reasons[of] = reason
			}
		}
	}
	return reasons
}

// main returns the value of the samples that tell when threads ran: time, or else the value
// of the first thread.
func (t *firefoxTimes) main() (main profile.ValueType) {
	for i := range t.in.threads {
		of := &t.in.threads[i]
		value, _, _ := of.values()
		if of.pseudo() == "" && len(of.stack) > 0 && (main == profile.ValueType{} || value == cpuTime) {
			main = value
		}
	}
	return cmp.Or(main, cpuTime)
}

// maxInterval bounds the time between two samples, in ms.
const maxInterval = 1e4

// distance returns the median time in nanoseconds between two samples of a value in a thread,
// a millisecond if there are no two at different times.
func (t *firefoxTimes) distance(value profile.ValueType) int64 {
	const most = 1 << 16
	var distances []float64
	for i := range t.in.threads {
		of := &t.in.threads[i]
		if v, _, _ := of.values(); v != value || of.pseudo() != "" {
			continue
		}
		for k := 1; k < len(of.time) && len(distances) < most; k++ {
			if d := of.time[k] - of.time[k-1]; d > 0 {
				distances = append(distances, d)
			}
		}
	}
	if len(distances) == 0 {
		return 1e6
	}
	slices.Sort(distances)
	return max(1, nanoseconds(min(distances[len(distances)/2], maxInterval)))
}

// span returns the start and the end in nanoseconds: the first and last sample, or those of
// the measurement if the file has them.
func (t *firefoxTimes) span() (start, end int64) {
	start = math.MaxInt64
	for i := range t.in.threads {
		if times := t.in.threads[i].time; len(times) > 0 {
			start, end = min(start, nanoseconds(times[0])), max(end, nanoseconds(times[len(times)-1]))
		}
	}
	if from, to := t.in.profilingStart, t.in.profilingEnd; from >= 0 && from < to && to <= maxFirefoxTime {
		start, end = min(start, nanoseconds(from)), max(end, nanoseconds(to))
	}
	return min(start, end), end
}

func nanoseconds(ms float64) int64 { return int64(math.Round(ms * 1e6)) }

// firefoxEvents implements [profile.Events].
type firefoxEvents struct {
	*firefoxTimes
	stack    func(profile.StackID) profile.StackID
	base     int64 // of all times
	interval int64 // in nanoseconds
	main     profile.ValueType
	types    map[profile.ValueType]profile.MarkerTypeID
	threads  []eventThread // by profile.ThreadID
}

// eventThread is a thread of the timeline.
type eventThread struct {
	samples  int   // the index of the thread with the samples of the main value, or -1
	weighted []int // the indexes of the threads with the samples of other values
}

// addThreads adds the processes and threads to line. A pseudo-thread becomes a part of the
// main thread of its process, or of a thread without samples.
func (e *firefoxEvents) addThreads(line *profile.Timeline) {
	processes, heads := map[string]profile.ProcessID{}, map[profile.ProcessID]profile.ThreadID{}
	process := func(t *firefoxThread) profile.ProcessID {
		id, ok := processes[t.pid]
		if !ok {
			id = profile.ProcessID(len(line.Processes))
			processes[t.pid] = id
			line.Processes = append(line.Processes, profile.Process{PID: leadingNumber(t.pid), Names: e.named(cmp.Or(t.processName, t.name))})
		}
		return id
	}
	thread := func(t profile.Thread, samples int) profile.ThreadID {
		id := profile.ThreadID(len(line.Threads))
		line.Threads = append(line.Threads, t)
		e.threads = append(e.threads, eventThread{samples: samples})
		if _, ok := heads[t.Process]; !ok || t.TID == line.Processes[t.Process].PID {
			heads[t.Process] = id
		}
		return id
	}
	var others []int
	for i := range e.in.threads {
		t := &e.in.threads[i]
		value, _, _ := t.values()
		switch {
		case t.pseudo() != "":
			others = append(others, i)
		case value == e.main:
			thread(profile.Thread{Process: process(t), TID: t.task().TID, Names: e.named(t.name)}, i)
		case len(t.stack) > 0:
			e.weigh(line, thread(profile.Thread{Process: process(t), TID: t.task().TID, Names: e.named(t.name)}, -1), i)
		}
	}
	for _, i := range others {
		id := process(&e.in.threads[i])
		head, ok := heads[id]
		if !ok {
			head = thread(profile.Thread{Process: id, TID: line.Processes[id].PID}, -1)
		}
		e.weigh(line, head, i)
	}
}

// named returns a name from the start on.
func (e *firefoxEvents) named(name string) []profile.Name {
	return []profile.Name{{At: e.base, Name: name}}
}

// weigh makes the samples of thread i of the input markers of a thread.
func (e *firefoxEvents) weigh(line *profile.Timeline, id profile.ThreadID, i int) {
	value, _, _ := e.in.threads[i].values()
	if _, ok := e.types[value]; !ok {
		e.types[value] = profile.MarkerTypeID(len(line.MarkerTypes))
		line.MarkerTypes = append(line.MarkerTypes, profile.MarkerType{
			Name: value.Type, Event: value.Type, Unit: value.Unit, OfProcess: e.in.threads[i].pseudo() != "",
		})
	}
	e.threads[id].weighted = append(e.threads[id].weighted, i)
}

// samplesOf returns the thread of the input with a thread's samples of the main value, and
// its stacks, or nil.
func (e *firefoxEvents) samplesOf(id profile.ThreadID) (*firefoxThread, *firefoxStacks) {
	i := e.threads[id].samples
	if i < 0 {
		return nil, nil
	}
	return &e.in.threads[i], e.stacks[i]
}

func (e *firefoxEvents) at(t *firefoxThread, i int) int64 { return e.base + nanoseconds(t.time[i]) }

// amount returns what sample i adds to the value of its thread.
func (t *firefoxThread) amount(i int) int64 {
	_, _, scale := t.values()
	weight := 1.0
	if t.weighs {
		weight = t.weight[i]
	}
	return int64(math.Round(weight * scale))
}

// stackOf returns the stack of sample i, and whether it is idle.
func (e *firefoxEvents) stackOf(t *firefoxThread, s *firefoxStacks, i int) (profile.StackID, bool) {
	if t.stack[i] == null {
		return 0, false
	}
	return e.stack(s.rows[t.stack[i]]), e.main == cpuTime && s.idle[t.stack[i]]
}

// maxWeight bounds the time of a sample of another value than time, in nanoseconds, so that
// no sum overflows.
const maxWeight = 1 << 36

// OnCPU implements [profile.Events].
func (e *firefoxEvents) OnCPU(id profile.ThreadID) iter.Seq2[profile.OnCPU, error] {
	return func(yield func(profile.OnCPU, error) bool) {
		t, s := e.samplesOf(id)
		if t == nil {
			return
		}
		for i := range t.stack {
			stack, idle := e.stackOf(t, s, i)
			if idle {
				continue
			}
			on := profile.OnCPU{Time: e.at(t, i), Stack: stack, Weight: t.amount(i), CPU: -1}
			if e.main != cpuTime {
				on.Amount, on.Weight = on.Weight, e.interval
				if e.main.Unit == "count" && on.Amount > 1 { // several intervals
					on.Weight = min(e.interval, maxWeight/on.Amount) * on.Amount
				}
			}
			if !yield(on, nil) {
				return
			}
		}
	}
}

// waitStates are the states of waits that have no other reason, see package firefox.
var waitStates = map[string]profile.TaskState{
	"preempted": profile.StateRunnable, "stopped": profile.StateStopped, "traced": profile.StateTraced,
	"uninterruptible wait": profile.StateUninterruptible, "waiting": profile.StateSleeping,
}

// pairTolerance is by how much the weights of a wait's two samples may differ from the time
// between them, in nanoseconds.
const pairTolerance = 1e6

// OffCPU implements [profile.Events]. A wait has two samples of the same stack, one at its
// start and one at its end, whose weights add up to its length. Another idle sample is a
// wait that ends then.
func (e *firefoxEvents) OffCPU(id profile.ThreadID) iter.Seq2[profile.OffCPU, error] {
	return func(yield func(profile.OffCPU, error) bool) {
		t, s := e.samplesOf(id)
		if t == nil {
			return
		}
		for i := 0; i < len(t.stack); i++ {
			stack, idle := e.stackOf(t, s, i)
			if !idle {
				continue
			}
			at, length := e.at(t, i), t.amount(i)
			wait := profile.OffCPU{Start: max(at-max(length, 0), 0), Duration: length, State: profile.StateSleeping, Stack: stack}
			if at, reason, ok := s.wait(t.stack[i]); ok {
				wait.Stack = e.stack(at)
				if state, known := waitStates[reason]; known {
					wait.State = state
				}
			}
			if i+1 < len(t.stack) && t.stack[i+1] == t.stack[i] {
				if both := length + t.amount(i+1); both >= 0 && math.Abs(float64(e.at(t, i+1)-at)-float64(both)) <= pairTolerance {
					wait.Start, wait.Duration = at, both
					i++
				}
			}
			if !yield(wait, nil) {
				return
			}
		}
	}
}

// BlockIO implements [profile.Events].
func (*firefoxEvents) BlockIO(profile.ThreadID) iter.Seq2[profile.BlockIO, error] {
	return func(func(profile.BlockIO, error) bool) {}
}

// Faults implements [profile.Events].
func (*firefoxEvents) Faults(profile.ThreadID) iter.Seq2[profile.Fault, error] {
	return func(func(profile.Fault, error) bool) {}
}

// Markers implements [profile.Events].
func (e *firefoxEvents) Markers(id profile.ThreadID) iter.Seq2[profile.Marker, error] {
	return func(yield func(profile.Marker, error) bool) {
		var next cursors
		for _, i := range e.threads[id].weighted {
			if t := &e.in.threads[i]; len(t.stack) > 0 {
				next = append(next, cursor{t: t, s: e.stacks[i]})
			}
		}
		heap.Init(&next)
		for len(next) > 0 {
			c := &next[0]
			value, _, _ := c.t.values()
			stack, _ := e.stackOf(c.t, c.s, c.i)
			m := profile.Marker{Time: e.at(c.t, c.i), Type: e.types[value], Stack: stack, Weight: c.t.amount(c.i)}
			if c.i++; c.i < len(c.t.stack) {
				heap.Fix(&next, 0)
			} else {
				heap.Pop(&next)
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// cursor is the next sample of a thread of the input, and cursors are sorted by its time.
type cursor struct {
	t *firefoxThread
	s *firefoxStacks
	i int
}

type cursors []cursor

func (c cursors) Len() int           { return len(c) }
func (c cursors) Less(a, b int) bool { return c[a].t.time[c[a].i] < c[b].t.time[c[b].i] }
func (c cursors) Swap(a, b int)      { c[a], c[b] = c[b], c[a] }
func (c *cursors) Push(any)          {} // not used
func (c *cursors) Pop() any {
	last := len(*c) - 1
	*c = (*c)[:last]
	return nil
}
