package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/recording"
)

// The findings about a recording that a flight recorder wrote name at most changedThreads threads, whose share of time
// in a state changed by at least changedShare.
const (
	changedThreads = 5
	changedShare   = 0.05
)

// Incident makes the report begin with the moment for which a flight recorder wrote the recording: what changed around
// it against the rest, thread by thread. It has no effect on other recordings. It fails if the events cannot be read.
func (r *Report) Incident(line *profile.Timeline) error {
	m := line.Profile.Meta
	from, to, ok := m.Around()
	if !ok {
		return nil
	}
	first := m.Triggers[0]
	text := "The recording was written because of " + named(first.Name)
	if first.Value != "" {
		text += " (" + named(first.Value) + ")"
	}
	text += fmt.Sprintf(", %s after its beginning", describe.Quantity(int64(first.After), "nanoseconds"))
	if more := len(m.Triggers) - 1; more > 0 {
		text += plural(uint64(more), ", and # more trigger", ", and # more triggers")
	}
	findings := []Finding{{
		Rule: "trigger", marked: text + ".",
		Numbers: map[string]float64{"after_seconds": first.After.Seconds(), "triggers": float64(len(m.Triggers))},
	}}
	changes, err := changesOf(line, int64(from), int64(to))
	if err != nil {
		return err
	}
	for _, c := range changes[:min(len(changes), changedThreads)] {
		findings = append(findings, c.finding(line, to-from))
	}
	if len(changes) == 0 && to-from < time.Duration(line.End-line.Start) {
		findings = append(findings, Finding{
			Rule: "around", Numbers: map[string]float64{},
			marked: fmt.Sprintf("No thread spent its time differently in the %s around it.", describe.Quantity(int64(to-from), "nanoseconds")),
		})
	}
	for i := range findings {
		findings[i].Text = strip(findings[i].marked)
	}
	r.Findings = append(findings, r.Findings...)
	return nil
}

// change is what changed in a thread around a moment.
type change struct {
	thread profile.ThreadID
	// around and rest are the shares of the thread's time in each state.
	around, rest [len(stateNames)]float64
	inRest       bool // the thread has time there
	time         int64
	// function is the innermost one in which the thread spends more time than in the rest, "" if there is none, with the
	// shares of its time with it on the stack.
	function                     string
	functionAround, functionRest float64
}

// stateNames are the states of threads in sentences.
var stateNames = [...]string{"ran", "was ready to run without a CPU", "waited"}

// largest returns the largest change of a share.
func (c *change) largest() (size float64) {
	for i := range c.around {
		size = max(size, math.Abs(c.around[i]-c.rest[i]))
	}
	return max(size, c.functionAround-c.functionRest)
}

// changesOf returns the threads of which the shares in the time from and to, since the start, differ from those in the
// rest of the recording, those with the largest change of time first.
func changesOf(line *profile.Timeline, from, to int64) (list []*change, err error) {
	length := line.End - line.Start
	var rest []recording.Span
	for _, s := range []recording.Span{{From: 0, To: from}, {From: to, To: length}} {
		if s.From < s.To {
			rest = append(rest, s)
		}
	}
	if len(rest) == 0 {
		return nil, nil
	}
	around, others := recording.Cut(line, []recording.Span{{From: from, To: to}}), recording.Cut(line, rest)
	here, waits, err := sharesOf(around)
	if err != nil || !waits {
		return nil, err
	}
	there, _, err := sharesOf(others)
	if err != nil {
		return nil, err
	}
	for id, of := range here {
		c := &change{thread: id, around: of.share, time: of.known}
		if other := there[id]; other.known > 0 {
			c.rest, c.inRest = other.share, true
			if err := c.find(around, others, of.known, other.known); err != nil {
				return nil, err
			}
		}
		if c.largest() >= changedShare {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *change) int {
		return cmp.Or(cmp.Compare(b.largest()*float64(b.time), a.largest()*float64(a.time)), cmp.Compare(a.thread, b.thread))
	})
	return list, nil
}

// threadShares are the shares of the known time of a thread in each state.
type threadShares struct {
	share [len(stateNames)]float64
	known int64 // nanoseconds
}

// sharesOf returns the shares of threads in a recording. waits reports whether it has waits.
func sharesOf(line *profile.Timeline) (all map[profile.ThreadID]threadShares, waits bool, err error) {
	states, waits, err := recording.StatesOf(line, 1)
	all = map[profile.ThreadID]threadShares{}
	for _, s := range states {
		times := [...]int64{recording.Total(s.Running), recording.Total(s.Runnable), recording.Total(s.Waiting)}
		known := times[0] + times[1] + times[2]
		if known <= 0 {
			continue
		}
		of := threadShares{known: known}
		for i, n := range times {
			of.share[i] = float64(n) / float64(known)
		}
		all[s.Thread] = of
	}
	return all, waits, err
}

// find finds the function in which the thread spends more time around than in the rest, given its known times.
func (c *change) find(around, rest *profile.Timeline, knownAround, knownRest int64) error {
	stacks, err := stackTimes(around, c.thread)
	if err != nil {
		return err
	}
	before, err := stackTimes(rest, c.thread)
	if err != nil {
		return err
	}
	p := around.Profile
	here, there := functionTimes(p, stacks), functionTimes(p, before)
	grown := func(name string) float64 {
		return float64(here[name])/float64(knownAround) - float64(there[name])/float64(knownRest)
	}
	most := 0.0
	for name := range here {
		most = max(most, grown(name))
	}
	if most < changedShare {
		return nil
	}
	// The innermost function with most of the growth, in the stack that has grown most.
	best, largest := profile.StackID(0), math.Inf(-1)
	for id, n := range stacks {
		if g := float64(n)/float64(knownAround) - float64(before[id])/float64(knownRest); g > largest || g == largest && id < best {
			best, largest = id, g
		}
	}
	for ; best != 0; best = p.Stacks[best].Parent {
		f := p.Stacks[best].Frame
		if p.Frames[f].Kind == profile.KindMarker {
			continue
		}
		if name := p.FrameName(f); grown(name) >= mostOfGrowth*most {
			c.function = name
			c.functionAround, c.functionRest = float64(here[name])/float64(knownAround), float64(there[name])/float64(knownRest)
			return nil
		}
	}
	return nil
}

// mostOfGrowth is the share of the largest growth that a function needs to be named.
const mostOfGrowth = 0.8

// stackTimes returns the time of a thread by stack, in nanoseconds.
func stackTimes(line *profile.Timeline, id profile.ThreadID) (map[profile.StackID]int64, error) {
	times := map[profile.StackID]int64{}
	for on, err := range line.Events.OnCPU(id) {
		if err != nil {
			return nil, err
		}
		times[on.Stack] += on.Weight
	}
	for w, err := range line.Events.OffCPU(id) {
		if err != nil {
			return nil, err
		}
		times[w.Stack] += w.Duration
	}
	return times, nil
}

// functionTimes returns the time with each function on the stack.
func functionTimes(p *profile.Profile, stacks map[profile.StackID]int64) map[string]int64 {
	times := map[string]int64{}
	seen := map[string]bool{}
	for id, n := range stacks {
		clear(seen)
		for ; id != 0; id = p.Stacks[id].Parent {
			f := p.Stacks[id].Frame
			if name := p.FrameName(f); p.Frames[f].Kind != profile.KindMarker && !seen[name] {
				seen[name] = true
				times[name] += n
			}
		}
	}
	return times
}

// finding describes a change.
func (c *change) finding(line *profile.Timeline, length time.Duration) Finding {
	thread := line.Threads[c.thread]
	process := line.Processes[thread.Process]
	names := thread.Names
	if len(names) == 0 {
		names = process.Names
	}
	f := Finding{Rule: "around", Numbers: map[string]float64{"pid": float64(process.PID), "tid": float64(thread.TID), "seconds": length.Seconds()}}
	var parts []string
	for i, name := range [...]string{"running", "runnable", "waiting"} {
		f.Numbers[name], f.Numbers[name+"_rest"] = c.around[i], c.rest[i]
		if math.Abs(c.around[i]-c.rest[i]) < changedShare/2 {
			continue
		}
		part := fmt.Sprintf("%s for %s", stateNames[i], percent(c.around[i]))
		if c.inRest {
			part += fmt.Sprintf(" rather than %s", percent(c.rest[i]))
		}
		parts = append(parts, part)
	}
	if c.function != "" {
		f.Numbers["function"], f.Numbers["function_rest"] = c.functionAround, c.functionRest
		parts = append(parts, fmt.Sprintf("spent %s in %s rather than %s", percent(c.functionAround), named(c.function), percent(c.functionRest)))
	}
	at := len(parts) - 1
	text := parts[at]
	if at > 0 {
		text = strings.Join(parts[:at], ", ") + " and " + text
	}
	who := fmt.Sprintf("thread %s %d", named(profile.LastName(names)), thread.TID)
	if thread.TID != process.PID {
		who += fmt.Sprintf(" of process %d", process.PID)
	}
	f.marked = fmt.Sprintf("In the %s around it, %s %s", describe.Quantity(int64(length), "nanoseconds"), who, text)
	if !c.inRest {
		f.marked += "; at other times it did nothing that the recording has"
	}
	f.marked += "."
	return f
}
