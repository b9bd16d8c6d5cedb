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
	mostly       string
	time         int64 // around, in nanoseconds
}

// stateNames are the states of threads in sentences.
var stateNames = [...]string{"ran", "was ready to run without a CPU", "waited"}

// largest returns the largest change of a share.
func (c *change) largest() (size float64) {
	for i := range c.around {
		size = max(size, math.Abs(c.around[i]-c.rest[i]))
	}
	return size
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
	around := recording.Cut(line, []recording.Span{{From: from, To: to}})
	here, waits, err := sharesOf(around)
	if err != nil || !waits {
		return nil, err
	}
	others, _, err := sharesOf(recording.Cut(line, rest))
	if err != nil {
		return nil, err
	}
	for id, of := range here {
		c := &change{thread: id, around: of.share, time: of.known}
		if other := others[id]; other.known > 0 {
			c.rest, c.inRest = other.share, true
		}
		if c.largest() >= changedShare {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *change) int {
		return cmp.Or(cmp.Compare(b.largest()*float64(b.time), a.largest()*float64(a.time)), cmp.Compare(a.thread, b.thread))
	})
	for _, c := range list[:min(len(list), changedThreads)] {
		if c.mostly, err = mostly(around, c); err != nil {
			return nil, err
		}
	}
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

// mostly says what a thread did in the state that grew most: the innermost function, or the reason of waits.
func mostly(line *profile.Timeline, c *change) (string, error) {
	grown, by := 0, 0.0
	for i := range c.around {
		if d := c.around[i] - c.rest[i]; d > by {
			grown, by = i, d
		}
	}
	sums := map[string]int64{}
	p := line.Profile
	// The innermost function, for waits of the program: the kernel's are the same for all.
	function := func(s profile.StackID) (name string) {
		for ; s != 0; s = p.Stacks[s].Parent {
			f := p.Stacks[s].Frame
			kind := p.Frames[f].Kind
			if kind == profile.KindMarker {
				continue
			}
			if name == "" || kind != profile.KindKernel {
				name = named(p.FrameName(f))
			}
			if grown == 0 || kind != profile.KindKernel {
				break
			}
		}
		return name
	}
	switch grown {
	case 0:
		for on, err := range line.Events.OnCPU(c.thread) {
			if err != nil {
				return "", err
			}
			sums[function(on.Stack)] += on.Weight
		}
	default:
		for w, err := range line.Events.OffCPU(c.thread) {
			if err != nil {
				return "", err
			}
			waiting := w.Duration - w.Runnable
			if w.State == profile.StateRunnable {
				waiting = 0
			}
			name := function(w.Stack)
			if reason := line.Reason(w); reason != "" {
				name = strings.TrimSpace(named(reason) + " in " + name)
			}
			if grown == 1 {
				waiting = w.Duration - waiting
			}
			sums[name] += waiting
		}
	}
	best, whole := "", int64(0)
	for name, n := range sums {
		whole += n
		if name != "" && (best == "" || n > sums[best] || n == sums[best] && name < best) {
			best = name
		}
	}
	if best == "" || whole <= 0 || float64(sums[best])/float64(whole) < changedShare {
		return "", nil
	}
	return fmt.Sprintf("; it %s mostly in %s (%s)", stateNames[grown], best, percent(float64(sums[best])/float64(whole))), nil
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
		part := fmt.Sprintf("%s for %s of its time", stateNames[i], percent(c.around[i]))
		if c.inRest {
			part += fmt.Sprintf(" rather than %s", percent(c.rest[i]))
		}
		parts = append(parts, part)
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
	f.marked += c.mostly + "."
	return f
}
