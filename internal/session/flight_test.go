package session

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fulgur/internal/capture/trigger"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/timeline"
)

// newTestFlight returns a flight recorder without sources.
func newTestFlight(keep time.Duration, memory int64) (*flight, *bytes.Buffer) {
	var stderr bytes.Buffer
	o := &FlightOptions{Keep: keep, MaxMemory: memory, Rest: keep, After: time.Second}
	o.Stderr = &stderr
	r := &run{options: &o.Options, queue: newQueue(maxUnwritten)}
	return &flight{run: r, options: o, last: -1}, &stderr
}

// What is held never takes more than the limit, and always has the whole time to keep if that fits.
func TestFlightHolds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, scarce := range []bool{false, true} {
		const keep, limit = 30 * time.Second, int64(64 << 20)
		f, stderr := newTestFlight(keep, limit)
		now, shortened := int64(0), false
		for range 10_000 {
			p := &heldPart{start: now, bytes: rng.Int64N(limit / 20)}
			now += int64(f.partLength())
			p.end = now
			if scarce && rng.IntN(3) == 0 {
				p.bytes *= 10
			}
			f.held = append(f.held, p)
			open := rng.Int64N(limit / 50)
			f.drop(now, open)
			used := open
			for _, p := range f.held {
				used += p.bytes
			}
			if len(f.held) > 0 && used > limit {
				t.Fatalf("%d bytes are held, of at most %d", used, limit)
			}
			whole := len(f.held) > 0 && f.held[0].start <= max(0, now-int64(keep))
			shortened = shortened || !whole
			if !scarce && !whole {
				t.Fatalf("at %v, not all of %v is held: the first of %d parts begins at %v", time.Duration(now), keep, len(f.held), time.Duration(f.held[0].start))
			}
			if n := len(f.held); n > flightParts+2 {
				t.Fatalf("%d parts are held", n)
			}
			for i := 1; i < len(f.held); i++ {
				if f.held[i].start != f.held[i-1].end {
					t.Fatalf("a part is missing after %v", f.held[i-1].end)
				}
			}
		}
		if said := strings.Count(stderr.String(), "\n"); said > 1 || scarce != (said == 1) || scarce != (f.counted.shortened > 0) || scarce != shortened {
			t.Errorf("scarce memory %v: got %d parts dropped for it, and %q", scarce, f.counted.shortened, stderr)
		}
	}
}

// Triggers during the time after one belong to its file. Others within the time to rest, and those that come
// while files are written, only count; an exit always has a file.
func TestFlightTakes(t *testing.T) {
	f, _ := newTestFlight(10*time.Second, 1<<30)
	fired := func(name string, at time.Duration) []trigger.Firing {
		return []trigger.Firing{{Trigger: name, Name: name, At: int64(at), Begin: int64(at)}}
	}
	f.take(fired("wait", 20*time.Second), int64(20*time.Second))
	f.take(fired("cpu", 20500*time.Millisecond), int64(20500*time.Millisecond))
	if f.pending == nil || len(f.pending.firings) != 2 || f.pending.due != int64(21*time.Second) {
		t.Fatalf("got %+v, want two firings until 21 s", f.pending)
	}
	f.pending = nil
	f.take(fired("wait", 29*time.Second), int64(29*time.Second))
	if f.pending != nil || f.counted.rested != 1 {
		t.Errorf("within the rest: got %+v and %+v", f.pending, f.counted)
	}
	f.take(fired("exit", 29*time.Second), int64(29*time.Second))
	if f.pending == nil {
		t.Error("the exit has no file")
	}
	f.pending = nil
	f.run.queue.waiting.Store(maxUnwritten)
	f.take(fired("wait", 60*time.Second), int64(60*time.Second))
	if f.pending != nil || f.counted.busy != 1 {
		t.Errorf("while files are written: got %+v and %+v", f.pending, f.counted)
	}
	f.run.queue.waiting.Store(0)
	f.take(fired("wait", 62*time.Second), int64(64*time.Second)) // found late
	if f.pending == nil || f.pending.due != int64(64*time.Second) {
		t.Errorf("got %+v, want it due at once", f.pending)
	}
	for range 10 * maxShownFirings {
		f.take(fired("wait", 62*time.Second), int64(64*time.Second))
	}
	if n := len(f.pending.firings); n != maxShownFirings {
		t.Errorf("got %d firings in a file, want at most %d", n, maxShownFirings)
	}
}

// Files have names of their own, and only the oldest files of flight recorders are removed.
func TestIncidentFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "incidents")
	o := &FlightOptions{Keep: time.Second, MaxFiles: 3}
	o.Output, o.Format = dir, "html"
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	d, err := newIncidents(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Open(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notes.html", "20010101T000000.000Z-wait.html", "20010101T000000.000Z-wait.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := encodetest.Typical()
	w := Window{Profile: p, Timeline: timeline.Join(p, 1, 2, nil)}
	seen := map[string]bool{}
	for i := range int64(5) { // two at a time
		path, err := d.write(trigger.Firing{Name: "wait", At: i / 2 * int64(time.Minute)}, w)
		if err != nil {
			t.Fatal(err)
		}
		if seen[path] || !incidentName.MatchString(filepath.Base(path)) {
			t.Errorf("got path %s, want a new one for each file", path)
		}
		seen[path] = true
	}
	names := filesIn(t, dir)
	if len(names) != 5 || slices.Contains(names, "20010101T000000.000Z-wait.html") || !slices.Contains(names, "notes.html") {
		t.Errorf("got files %q, want the newest 3 and those of others", names)
	}
}

func TestFlightRefuses(t *testing.T) {
	for what, change := range map[string]func(*FlightOptions){
		"keep":   func(o *FlightOptions) { o.Keep = time.Millisecond },
		"after":  func(o *FlightOptions) { o.After = 2 * time.Hour },
		"memory": func(o *FlightOptions) { o.MaxMemory = 1 },
		"format": func(o *FlightOptions) { o.Format = "folded" },
		"output": func(o *FlightOptions) { o.Output = "-" },
		"URL":    func(o *FlightOptions) { o.Output = "http://localhost:4318" },
	} {
		o := FlightOptions{Keep: time.Second}
		o.Output = t.TempDir()
		change(&o)
		if code, err := Flight(t.Context(), o); !errors.Is(err, usage.Err) || code == 0 {
			t.Errorf("%s: got code %d, error %v, want a usage error", what, code, err)
		}
	}
}
