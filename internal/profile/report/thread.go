package report

import (
	"cmp"
	"fmt"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// threadTime is the time of a thread, or of a process in profiles without threads.
type threadTime struct {
	task     profile.Task
	ran      int64
	waited   int64
	ready    int64            // of waited: for a CPU
	byReason map[string]int64 // waited
}

// threadTimes returns the times of all threads, or processes.
func (f *facts) threadTimes() map[threadID]*threadTime {
	on, off := f.find("cpu"), f.find("off-cpu")
	threads := map[threadID]*threadTime{}
	for _, s := range f.Samples {
		task := f.Tasks[s.Task]
		ran, waited := f.valueOf(s, on), f.valueOf(s, off)
		if task.PID == 0 || ran == 0 && waited == 0 {
			continue // another kind of event
		}
		t := threads[idOf(task)]
		if t == nil {
			t = &threadTime{task: task, byReason: map[string]int64{}}
			threads[idOf(task)] = t
		}
		if ran > 0 {
			t.task = task // it may have had its parent's name before
		}
		t.ran += ran
		t.waited += waited
		if leaf := f.leaf(s.Stack); leaf != 0 && f.Frames[leaf].Kind == profile.KindMarker && waited > 0 {
			reason := f.FrameName(leaf)
			t.byReason[reason] += waited
			if f.reasonOf(s.Stack) == "preempted" {
				t.ready += waited
			}
		}
	}
	return threads
}

// valueOf returns a value of a sample, 0 if the profile does not have it.
func (f *facts) valueOf(s profile.Sample, v int) int64 {
	if v < 0 {
		return 0
	}
	return s.Values[v]
}

// threadID identifies a thread, or a process in profiles without threads.
type threadID struct{ pid, tid int }

func idOf(t profile.Task) threadID { return threadID{t.PID, t.TID} }

// busiest returns the thread, or process, with the most CPU time, and the number of all. It returns nil
// if none ran.
func (f *facts) busiest() (*threadTime, int) {
	threads := f.threadTimes()
	busiest := &threadTime{}
	for _, t := range threads {
		if c := cmp.Or(cmp.Compare(t.ran, busiest.ran), cmp.Compare(busiest.task.TID, t.task.TID), cmp.Compare(busiest.task.PID, t.task.PID)); c > 0 {
			busiest = t
		}
	}
	if busiest.ran == 0 {
		return nil, len(threads)
	}
	return busiest, len(threads)
}

// together returns the times of all threads, for recordings whose stacks do not belong to threads.
func (f *facts) together() *threadTime {
	on, off := f.find("cpu"), f.find("off-cpu")
	t := &threadTime{ran: f.Total(on), waited: f.Total(off)}
	for _, s := range f.Samples {
		if f.reasonOf(s.Stack) == "preempted" {
			t.ready += s.Values[off]
		}
	}
	return t
}

// name returns what it is, "thread" or "process", and its name in a sentence.
func (t *threadTime) name() (what, name string) {
	if t.task.TID == 0 {
		return "process", named(fmt.Sprintf("%s %d", t.task.Comm, t.task.PID))
	}
	return "thread", named(fmt.Sprintf("%s %d/%d", t.task.Comm, t.task.PID, t.task.TID))
}

// isStarved reports whether it was ready to run for a large part of its time.
func (t *threadTime) isStarved() bool { return float64(t.ready) >= preemptedShare*float64(t.ran) }

// thread finds what the busiest thread or process waits for. The total waiting time says little,
// since it is that of many threads.
func thread(f *facts) (Finding, bool) {
	if f.find("cpu") < 0 || f.find("off-cpu") < 0 {
		return Finding{}, false
	}
	busiest, n := f.busiest()
	if busiest == nil || n < 2 || busiest.waited == 0 {
		return Finding{}, false
	}
	reason, sum := most(func(add func(string, int64)) {
		for reason, sum := range busiest.byReason {
			add(reason, sum)
		}
	})
	what, name := busiest.name()
	found := Finding{
		Numbers: map[string]float64{"running_seconds": float64(busiest.ran) / 1e9, "waiting_seconds": float64(busiest.waited) / 1e9},
		marked: fmt.Sprintf("The busiest %s, %s, ran for %s and waited for %s", what, name,
			describe.Quantity(busiest.ran, "nanoseconds"), describe.Quantity(busiest.waited, "nanoseconds")),
	}
	if sum > 0 {
		share := float64(sum) / float64(busiest.waited)
		found.Numbers["reason_share"] = share
		found.marked += mainReason(reason, share)
	}
	found.marked += "."
	if busiest.isStarved() {
		found.Numbers["preempted_seconds"] = float64(busiest.ready) / 1e9
		found.marked += fmt.Sprintf(" The %s was ready to run, but got no CPU, for %s.", what, describe.Quantity(busiest.ready, "nanoseconds"))
	}
	return found, true
}

// starved says how long threads were ready to run without a CPU, if rule thread does not: in profiles of a
// single thread, and in those of waits alone.
func starved(f *facts) (Finding, bool) {
	off, runnable := f.find("off-cpu"), f.find("runnable")
	if f.find("cpu") >= 0 && off >= 0 {
		busiest, n := f.busiest()
		if n == 0 {
			busiest = f.together()
		}
		if busiest == nil || n > 1 || !busiest.isStarved() {
			return Finding{}, false
		}
		who := "Threads were"
		if n == 1 {
			what, name := busiest.name()
			who = "The " + what + " " + name + " was"
		}
		return Finding{
			Numbers: map[string]float64{"preempted_seconds": float64(busiest.ready) / 1e9, "running_seconds": float64(busiest.ran) / 1e9},
			marked: fmt.Sprintf("%s ready to run, but got no CPU, for %s, and ran for %s.", who,
				describe.Quantity(busiest.ready, "nanoseconds"), describe.Quantity(busiest.ran, "nanoseconds")),
		}, true
	}
	if off < 0 || runnable < 0 {
		return Finding{}, false
	}
	ready, waited := f.Total(runnable), f.Total(off)
	if ready <= 0 || waited <= 0 || float64(ready) < preemptedShare*float64(waited) {
		return Finding{}, false
	}
	share := float64(ready) / float64(waited)
	return Finding{
		Numbers: map[string]float64{"ready_seconds": float64(ready) / 1e9, "share": share},
		marked: fmt.Sprintf("%s were ready to run, but got no CPU, for %s, %s of the time off the CPU.",
			f.whoWaits(), describe.Quantity(ready, "nanoseconds"), percent(share)),
	}, true
}

// First returns the index of the value to show first of a recording: the waits, rather than the CPU
// time, if the busiest thread waited longer than it ran. For any other profile, it returns value.
func First(p *profile.Profile, value int) int {
	f := newFacts(p, value, 0, false)
	off := f.find("off-cpu")
	if !describe.IsMixed(p.ValueTypes) || value != f.find("cpu") {
		return value
	}
	busiest, n := f.busiest()
	if n == 0 && !describe.IsWhole(p.Meta) {
		busiest = f.together()
	}
	if busiest == nil || busiest.waited <= busiest.ran {
		return value
	}
	return off
}
