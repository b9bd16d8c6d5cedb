package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/capture/target"
	"fulgur/internal/profile"
)

// Frames are named ahead when there are many new ones, after a rest, and for the last time shortly
// before the end.
func TestAheadDue(t *testing.T) {
	start := time.Now()
	for name, test := range map[string]struct {
		ahead ahead
		n     int
		at    time.Duration // after the start
		rest  time.Duration // until then, after the start
		limit time.Duration // 0 if there is none
		want  bool
	}{
		"first frames":                          {n: 1, at: time.Second, want: true},
		"too early":                             {n: 1, at: time.Second - 1},
		"too early, although the end is near":   {n: 1, at: time.Second - 1, limit: time.Second},
		"no frames":                             {at: time.Second},
		"half as many":                          {ahead: ahead{frames: 10}, n: 15, at: time.Hour},
		"more":                                  {ahead: ahead{frames: 10}, n: 16, at: time.Hour, want: true},
		"more, but the last time was expensive": {ahead: ahead{frames: 10}, n: 16, at: time.Minute, rest: time.Hour},
		"long before the end":                   {ahead: ahead{frames: 10}, n: 11, at: 89 * time.Second, limit: 100 * time.Second},
		"before the end":                        {ahead: ahead{frames: 10}, n: 11, at: 90 * time.Second, limit: 100 * time.Second, want: true},
		"before the end, again":                 {ahead: ahead{frames: 10, last: true}, n: 99, at: 95 * time.Second, limit: 100 * time.Second},
		"before the end, nothing new":           {ahead: ahead{frames: 10}, n: 10, at: 95 * time.Second, limit: 100 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var end time.Time
			if test.limit > 0 {
				end = start.Add(test.limit)
			}
			test.ahead.rest = start.Add(test.rest)
			if got := test.ahead.due(test.n, start.Add(test.at), start, end); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// A profile whose frames were named while sampling went on is the same as one whose frames were not.
func TestNameAhead(t *testing.T) {
	profileOf := func(ahead bool) *profile.Profile {
		var got collected
		w := newTestWindows(t, 0, stackstest.Own(t), got.take)
		w.run.sampled = make(chan struct{})
		w.run.sources = []source.Source{newCounting(1, 5)}
		defer func() { w.run.sources = nil }()
		w.start, w.run.loop.Start = time.Unix(1, 0), time.Unix(1, 0)
		if ahead {
			w.nameAhead(time.Now())
			if w.run.queue.waiting.Load() == 0 {
				t.Fatal("no frame is named")
			}
			if err := (<-w.run.queue.items).do(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.run.queue.waiting.Store(0)
			if w.nameAhead(time.Now()); w.run.queue.waiting.Load() > 0 {
				t.Error("frames are named again")
			}
		}
		close(w.run.sampled)
		if err := w.finish(); err != nil {
			t.Fatal(err)
		}
		if err := (<-w.run.queue.items).do(t.Context()); err != nil {
			t.Fatal(err)
		}
		return got[0].Profile
	}
	text := func(p *profile.Profile) string {
		return fmt.Sprintf("%+v\n%+v\n%+v\n%+v\n%+v", lines(p), p.Frames, p.Functions, p.Mappings, p.Losses)
	}
	want, got := text(profileOf(false)), text(profileOf(true))
	if got != want || !strings.Contains(got, "stackstest.") {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// With windows, without symbols, and while the writer is busy, no frames are named ahead.
func TestNoNamesAhead(t *testing.T) {
	for name, change := range map[string]func(*windows){
		"windows":                     func(w *windows) { w.every = time.Second },
		"no symbols":                  func(w *windows) { w.run.options.NoSymbols = true },
		"writer is busy":              func(w *windows) { w.run.queue.waiting.Store(1) },
		"sampling starts":             func(w *windows) { w.run.loop.Start = time.Now() },
		"events of the whole machine": func(w *windows) { w.asked = 0 },
		"waits, too, of a cgroup": func(w *windows) {
			w.run.options.Target.Scope = target.Cgroup
			w.run.sources = make([]source.Source, 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWindows(t, 0, stackstest.Own(t), nil)
			w.run.sources, w.run.loop.Start = make([]source.Source, 1), time.Now().Add(-time.Hour)
			change(w)
			defer func() { w.run.sources = nil }()
			if w.nameAhead(time.Now()); len(w.run.queue.items) > 0 {
				t.Error("frames are named")
			}
		})
	}
}

// Events of processes never include fulgur's own.
func TestNamesAheadOfProcesses(t *testing.T) {
	w := newTestWindows(t, 0, stackstest.Own(t), nil)
	w.asked, w.run.options.Target.Scope = 0, target.Processes
	if w.nameAhead(time.Now()); len(w.run.queue.items) != 1 {
		t.Error("no frames are named")
	}
}
