package report

import (
	"cmp"
	"fmt"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// usage is the time of a thread, or of a process in profiles without threads.
type usage struct {
	task     profile.Task
	ran      int64
	waited   int64
	ready    int64            // of waited: for a CPU
	byReason map[string]int64 // waited
}

// thread finds what the busiest thread or process waits for. The total waiting time says little,
// since most of it is often that of idle threads.
func thread(f *facts) (Finding, bool) {
	on, off := f.find("cpu"), f.find("off-cpu")
	if on < 0 || off < 0 {
		return Finding{}, false
	}
	type id struct{ pid, tid int }
	threads := map[id]*usage{}
	for _, s := range f.Samples {
		task := f.Tasks[s.Task]
		if task.PID == 0 || s.Values[on] == 0 && s.Values[off] == 0 {
			continue // another kind of event
		}
		u := threads[id{task.PID, task.TID}]
		if u == nil {
			u = &usage{task: task, byReason: map[string]int64{}}
			threads[id{task.PID, task.TID}] = u
		}
		if s.Values[on] > 0 {
			u.task = task // it may have had its parent's name before
		}
		u.ran += s.Values[on]
		u.waited += s.Values[off]
		if leaf := f.leaf(s.Stack); leaf != 0 && f.Frames[leaf].Kind == profile.KindMarker && s.Values[off] > 0 {
			reason := f.FrameName(leaf)
			u.byReason[reason] += s.Values[off]
			if strings.Contains(reason, "preempted") {
				u.ready += s.Values[off]
			}
		}
	}
	if len(threads) < 2 {
		return Finding{}, false
	}
	busiest := &usage{}
	for _, u := range threads {
		if c := cmp.Or(cmp.Compare(u.ran, busiest.ran), cmp.Compare(busiest.task.TID, u.task.TID)); c > 0 {
			busiest = u
		}
	}
	if busiest.ran == 0 || busiest.waited == 0 {
		return Finding{}, false
	}
	reason, n := most(func(add func(string, int64)) {
		for reason, sum := range busiest.byReason {
			add(reason, sum)
		}
	})
	what, name := "thread", fmt.Sprintf("%s %d/%d", busiest.task.Comm, busiest.task.PID, busiest.task.TID)
	if busiest.task.TID == 0 {
		what, name = "process", fmt.Sprintf("%s %d", busiest.task.Comm, busiest.task.PID)
	}
	ran, waited := describe.Quantity(busiest.ran, "nanoseconds"), describe.Quantity(busiest.waited, "nanoseconds")
	found := Finding{
		Numbers: map[string]float64{"running_seconds": float64(busiest.ran) / 1e9, "waiting_seconds": float64(busiest.waited) / 1e9},
		marked:  fmt.Sprintf("The busiest %s, %s, ran for %s and waited for %s.", what, named(name), ran, waited),
	}
	if n > 0 {
		share := float64(n) / float64(busiest.waited)
		found.Numbers["reason_share"] = share
		found.marked += mainReason(reason, share)
	}
	if float64(busiest.ready) >= preemptedShare*float64(busiest.ran) {
		found.Numbers["preempted_seconds"] = float64(busiest.ready) / 1e9
		found.marked += fmt.Sprintf(" The %s was ready to run, but got no CPU, for %s.", what, describe.Quantity(busiest.ready, "nanoseconds"))
	}
	return found, true
}
