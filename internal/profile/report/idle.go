package report

import (
	"fmt"
	"slices"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/own"
)

// Thresholds of idle threads.
const (
	idleShare  = 0.95 // of a thread's time: it waits in one place
	idleLength = 0.5  // of the measurement: the thread's time
	longWait   = 0.25 // of the measurement: the mean wait, in profiles without threads
	workShare  = 0.05 // of the measurement: what all other threads have together
	oneThread  = 1.05 // of the measurement: the most that the times of a single thread add up to
)

// Idle returns for each sample of p whether findings leave it out, nil if they leave out none: the waits of
// threads that wait nearly all of the time in one place, as those of a pool without work do, and of idle
// workers of the kernel. They explain nothing, and hide what the other threads wait for. If little else is left,
// all is idle, and nothing is left out. If there is a single thread, what it waits for is the answer.
func Idle(p *profile.Profile) []bool {
	f := &facts{Profile: p, waiters: p.Waiters()}
	return f.idleSamples()
}

// withoutIdle moves the samples of [Idle] to idle.
func (f *facts) withoutIdle() {
	isIdle := f.idleSamples()
	if isIdle == nil {
		return
	}
	p := *f.Profile
	p.Samples = nil
	for i, s := range f.Samples {
		if isIdle[i] {
			f.idle = append(f.idle, s)
		} else {
			p.Samples = append(p.Samples, s)
		}
	}
	f.Profile = &p
}

// idleSamples is [Idle].
func (f *facts) idleSamples() []bool {
	off := f.find("off-cpu")
	if off < 0 || f.Meta.Duration <= 0 {
		return nil
	}
	find, least := f.longWaits, longWait
	if slices.ContainsFunc(f.Tasks, func(t profile.Task) bool { return t.TID != 0 }) {
		find, least = f.idleThreads, idleLength
	}
	isIdle := find(off, least*float64(f.Meta.Duration.Nanoseconds()))
	idle := make([]bool, len(f.Samples))
	var left, all int64
	some := false
	for i, s := range f.Samples {
		reason, time := f.reasonOf(s.Stack), s.Values[off]+f.valueOf(s, f.find("cpu"))
		all += time
		if s.Values[off] > 0 && (isIdle(i) && forWork[reason] || reason == "idle worker") {
			idle[i], some = true, true
			continue
		}
		left += time
	}
	duration := float64(f.Meta.Duration.Nanoseconds())
	if !some || float64(left) < workShare*duration || float64(all) <= oneThread*duration {
		return nil
	}
	return idle
}

// idleThreads returns a function that reports whether sample i is of a thread that waits in one place.
func (f *facts) idleThreads(off int, least float64) func(i int) bool {
	type place struct {
		threadID
		stack profile.StackID
	}
	places := f.places()
	waited, whole := map[place]int64{}, map[threadID]int64{}
	for _, s := range f.Samples {
		id := idOf(f.Tasks[s.Task])
		waited[place{id, places[s.Stack]}] += s.Values[off]
		whole[id] += s.Values[off] + f.valueOf(s, f.find("cpu"))
	}
	return func(i int) bool {
		s := f.Samples[i]
		id := idOf(f.Tasks[s.Task])
		all := float64(whole[id])
		return all >= least && float64(waited[place{id, places[s.Stack]}]) >= idleShare*all
	}
}

// forWork are the reasons for which threads wait that have no work, by the names of package waits. A thread
// that waits for a disk or a lock has work.
var forWork = map[string]bool{
	"epoll": true, "poll": true, "select": true, "accept": true, "socket": true, "pipe": true, "event file": true, "terminal": true,
	"message queue": true, "semaphore": true, "futex": true, "signal": true, "sleep": true, "io_uring": true, "kernel thread": true,
}

// reasonOf returns the reason in the note on top of a stack, "futex", or "" if there is none.
func (f *facts) reasonOf(s profile.StackID) string {
	leaf := f.leaf(s)
	if leaf == 0 || f.Frames[leaf].Kind != profile.KindMarker {
		return ""
	}
	return strings.TrimPrefix(strings.Trim(f.FrameName(leaf), "[]"), "off-CPU: ")
}

// longWaits returns a function that reports whether the waits of sample i last as long as those of idle
// threads, in profiles that count the waits of a stack.
func (f *facts) longWaits(off int, least float64) func(i int) bool {
	count := slices.IndexFunc(f.ValueTypes, func(v profile.ValueType) bool {
		return v.Unit == "count" && (v.Type == "waits" || v.Type == "samples")
	})
	return func(i int) bool {
		s := f.Samples[i]
		return count >= 0 && s.Values[count] > 0 && float64(s.Values[off]) >= least*float64(s.Values[count])
	}
}

// places returns the place of each stack: its innermost frame in user space, without notes.
func (f *facts) places() []profile.StackID {
	list := make([]profile.StackID, len(f.Stacks))
	for id := 1; id < len(list); id++ {
		list[id] = profile.StackID(id)
		if k := f.Frames[f.Stacks[id].Frame].Kind; k == profile.KindMarker || k == profile.KindKernel {
			list[id] = list[f.Stacks[id].Parent]
		}
	}
	for id := range list {
		list[id] = list[f.waiters[id]]
	}
	return list
}

func idle(f *facts) (Finding, bool) {
	off := f.find("off-cpu")
	var sum int64
	threads := map[threadID]bool{}
	if len(f.idle) == 0 {
		return Finding{}, false
	}
	inner := own.Innermost(f.Profile).Frames
	place, n := most(func(add func(string, int64)) {
		for _, s := range f.idle {
			sum += s.Values[off]
			if id := idOf(f.Tasks[s.Task]); id.tid != 0 {
				threads[id] = true
			}
			if at := inner[f.waiters[s.Stack]]; at != 0 {
				add(f.GroupName(at), s.Values[off])
			}
		}
	})
	found := Finding{Numbers: map[string]float64{"waiting_seconds": float64(sum) / 1e9}}
	who := "Idle threads"
	if len(threads) > 0 {
		found.Numbers["threads"] = float64(len(threads))
		who = plural(uint64(len(threads)), "1 idle thread", "# idle threads")
	}
	found.marked = fmt.Sprintf("%s waited for %s, nearly all of the time in one place", who, describe.Quantity(sum, "nanoseconds"))
	if n > 0 {
		found.marked += ", mostly in " + named(place)
	}
	found.marked += "; the other findings leave this time out."
	return found, true
}
