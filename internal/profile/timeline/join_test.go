package timeline

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
)

// The events of parts are those of one recording: the same events, added to one recorder and to parts, give the
// same timeline, even if they arrive in a later part than the one in which they begin, and periods off the CPU are
// split.
func TestJoin(t *testing.T) {
	whole := newRecorder(t)
	part := NewPart(start, nil)
	var parts []Part
	same := func(s profile.StackID) profile.StackID { return s + 1 }
	rng := rand.New(rand.NewPCG(1, 2))
	const threads, steps = 4, 3000
	add := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	typ := profile.MarkerType{Name: "a:b", Event: "a:b", Fields: []string{"x"}}
	whole.AddMarkerType(typ)
	part.AddMarkerType(typ)
	now, left := start, [threads]int64{start, start, start, start}
	each := func(do func(r *Recorder)) {
		do(whole)
		do(part)
	}
	thread := func(r *Recorder, i int) profile.ThreadID {
		p := r.Process(7+i%2, 1)
		r.NameProcess(p, start, "p")
		id := r.Thread(p, 100+i, 1)
		r.NameThread(id, start, "t")
		return id
	}
	for n := range steps {
		now += 1000 + rng.Int64N(1e6)
		i := rng.IntN(threads)
		switch rng.IntN(4) {
		case 0:
			each(func(r *Recorder) {
				add(r.AddOnCPU(thread(r, i), profile.OnCPU{Time: now, Stack: profile.StackID(n % 9), Weight: 1000, CPU: 1}))
			})
		case 1:
			e := profile.OffCPU{Start: left[i] + 10, Duration: now - left[i] - 10, State: profile.StateSleeping, Stack: profile.StackID(n % 5), Waker: profile.Task{PID: 1, TID: 1}}
			e.Runnable = min(e.Duration, rng.Int64N(2000))
			add(whole.AddOffCPU(thread(whole, i), e))
			// Split it, as a cut of the parts does.
			if split := e.Duration / 2; rng.IntN(2) == 0 && split > 0 && e.Duration-split >= e.Runnable {
				first := e
				first.Duration, first.Runnable, first.Waker = split, 0, profile.Task{}
				add(part.AddOffCPU(thread(part, i), first))
				add(part.Seal())
				parts = append(parts, Part{part, same})
				part = NewPart(now, part)
				e.Start, e.Duration = e.Start+split, e.Duration-split
			}
			add(part.AddOffCPU(thread(part, i), e))
			left[i] = now
		case 2:
			e := profile.Marker{Time: now, Type: 0, Values: []string{"v"}, Stack: 3}
			each(func(r *Recorder) { add(r.AddMarker(thread(r, i), e)) })
		case 3:
			each(func(r *Recorder) {
				add(r.AddFault(thread(r, i), profile.Fault{Time: now, Address: uint64(n), File: "f", Count: 1, Stack: 2}))
				add(r.AddBlockIO(thread(r, i), profile.BlockIO{Queued: now - 5, Issued: now - 2, Completed: now, Bytes: 4096, Device: "d"}))
			})
		}
		if n%500 == 499 {
			add(part.Seal())
			parts = append(parts, Part{part, same})
			part = NewPart(now, part)
		}
	}
	add(part.Seal())
	parts = append(parts, Part{part, same})
	want, err := whole.Timeline(&profile.Profile{}, now, same)
	if err != nil {
		t.Fatal(err)
	}
	got := Join(&profile.Profile{}, start, now, parts)
	if diff := cmp.Diff(want.Processes, got.Processes); diff != "" {
		t.Errorf("processes (-whole +parts):\n%s", diff)
	}
	if diff := cmp.Diff(want.Threads, got.Threads); diff != "" {
		t.Errorf("threads (-whole +parts):\n%s", diff)
	}
	if diff := cmp.Diff(want.MarkerTypes, got.MarkerTypes); diff != "" {
		t.Errorf("types (-whole +parts):\n%s", diff)
	}
	for i := range want.Threads {
		id := profile.ThreadID(i)
		for what, diff := range map[string]string{
			"samples":  cmp.Diff(all(t, want.Events.OnCPU(id)), all(t, got.Events.OnCPU(id))),
			"waits":    cmp.Diff(all(t, want.Events.OffCPU(id)), all(t, got.Events.OffCPU(id))),
			"requests": cmp.Diff(all(t, want.Events.BlockIO(id)), all(t, got.Events.BlockIO(id))),
			"faults":   cmp.Diff(all(t, want.Events.Faults(id)), all(t, got.Events.Faults(id))),
			"markers":  cmp.Diff(all(t, want.Events.Markers(id)), all(t, got.Events.Markers(id))),
		} {
			if diff != "" {
				t.Fatalf("%s of thread %d (-whole +parts):\n%.2000s", what, i, diff)
			}
		}
	}
	total := func(line *profile.Timeline) map[string]int64 {
		sums := map[string]int64{}
		for _, c := range line.Counters {
			for _, n := range c.Changes {
				sums[string(rune('a'+c.Kind))+string(rune('0'+c.Process))] += n
			}
		}
		return sums
	}
	if diff := cmp.Diff(total(want), total(got)); diff != "" {
		t.Errorf("sums of counters (-whole +parts):\n%s", diff)
	}
}

// Resident memory begins at 0 in each part, and is the same in the whole, also if the first parts are gone.
func TestJoinResident(t *testing.T) {
	var parts []Part
	var before *Recorder
	for n := range int64(3) {
		at := start + n*1e9
		r := NewPart(at, before)
		p := r.Process(7, 1)
		r.Count(p, profile.CounterRSS, at+2e8, 4096*(n+1))
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		parts, before = append(parts, Part{Recorder: r}), r
	}
	for first, want := range []int64{3 * 4096, 3 * 4096, 3 * 4096} {
		line := Join(&profile.Profile{}, start+int64(first)*1e9, start+3e9, parts[first:])
		level := int64(0)
		for _, n := range line.Counters[0].Changes {
			if level += n; level < 0 {
				t.Errorf("from part %d: got %d bytes of memory", first, level)
			}
		}
		if level != want {
			t.Errorf("from part %d: got %d bytes at the end, want %d", first, level, want)
		}
	}
}
