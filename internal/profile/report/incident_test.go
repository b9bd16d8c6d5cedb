package report

import (
	"strings"
	"testing"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/timeline"
)

// incident returns a recording of 10 s with a trigger at 8 s: one thread always waits, but in lock from 7 s on. The
// other one runs from then on, and the third is always the same.
func incident(t *testing.T, triggers ...profile.Trigger) *profile.Timeline {
	t.Helper()
	b := profile.NewBuilder()
	stack := func(names ...string) (at profile.StackID) {
		for _, name := range names {
			at = b.Push(at, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name})}))
		}
		return at
	}
	client, lock, work := stack("main", "session", "client"), stack("main", "session", "lock"), stack("main", "work")
	p := b.Profile(profile.Meta{Duration: 10 * time.Second, Triggers: triggers}, profile.Losses{})
	const second, start = int64(time.Second), int64(1e9)
	r := timeline.NewPart(start, nil)
	process := r.Process(7, 1)
	var ids []profile.ThreadID
	for i, name := range []string{"waits", "runs", "same"} {
		id := r.Thread(process, 7+i, 1)
		r.NameThread(id, start, name)
		ids = append(ids, id)
	}
	for i := range int64(100) {
		at := start + i*second/10
		late := i >= 70
		w := profile.OffCPU{Start: at, Duration: second / 10, State: profile.StateSleeping, Stack: client}
		same := w
		if late {
			w.Stack = lock
		}
		run := same
		if late {
			run.Duration /= 2
			if err := r.AddOnCPU(ids[1], profile.OnCPU{Time: at + second/10 - 1, Weight: second / 20, Stack: work}); err != nil {
				t.Fatal(err)
			}
		}
		for n, w := range []profile.OffCPU{w, run, same} {
			w.Waker = profile.Task{PID: 1, TID: 1}
			if err := r.AddOffCPU(ids[n], w); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	return timeline.Join(p, start, start+10*second, []timeline.Part{{Recorder: r, Stack: func(s profile.StackID) profile.StackID { return s }}})
}

// A report of an incident begins with the trigger, and with what changed around it.
func TestIncident(t *testing.T) {
	line := incident(t, profile.Trigger{After: 8 * time.Second, Name: "wait>1s", Value: "1.5s"}, profile.Trigger{Name: "signal"})
	r := &Report{Findings: []Finding{{Rule: "load"}}}
	if err := r.Incident(line); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Rule+": "+f.Text)
	}
	// The 3 s from 6 s to 9 s have 2 s of the change, and the other 7 s have 1 s of it.
	want := []string{
		"trigger: The recording was written because of wait>1s (1.5s), 8.0 s after its beginning, and 1 more trigger.",
		"around: In the 3.0 s around it, thread waits 7 spent 66.7 % in lock rather than 14.3 %.",
		"around: In the 3.0 s around it, thread runs 8 of process 7 ran for 33.3 % rather than 7.1 %, waited for 66.7 % rather than 92.9 % and spent 33.3 % in work rather than 7.1 %.",
		"load: ",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNoIncident(t *testing.T) {
	r := &Report{Findings: []Finding{{Rule: "load"}}}
	if err := r.Incident(incident(t)); err != nil || len(r.Findings) != 1 {
		t.Errorf("got %+v, error %v, want no findings of an incident", r.Findings, err)
	}
}
