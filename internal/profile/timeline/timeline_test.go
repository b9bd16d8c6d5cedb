package timeline

import (
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
)

const start = int64(1_000_000_000)

func newRecorder(t testing.TB) *Recorder {
	t.Helper()
	r, err := NewRecorder(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func finish(t testing.TB, r *Recorder) *profile.Timeline {
	t.Helper()
	line, err := r.Timeline(&profile.Profile{}, 2*start, func(s profile.StackID) profile.StackID { return s + 1 })
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// all returns the elements of seq.
func all[E any](t *testing.T, seq iter.Seq2[E, error]) (list []E) {
	t.Helper()
	for e, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// Added events are read back, by thread and in order, for streams of any length.
func TestEvents(t *testing.T) {
	r := newRecorder(t)
	p := r.Process(7, 1)
	rng := rand.New(rand.NewPCG(1, 2))
	n := func() int64 { return rng.Int64N(1 << rng.IntN(40)) }
	stack := func() profile.StackID { return profile.StackID(rng.IntN(1 << 20)) }
	names := []string{"", "a", "tar", "/etc/passwd"}
	name := func() string { return names[rng.IntN(len(names))] }

	const threads = 5
	var on [threads][]profile.OnCPU
	var off [threads][]profile.OffCPU
	var io [threads][]profile.BlockIO
	var faults [threads][]profile.Fault
	var markers [threads][]profile.Marker
	types := []profile.MarkerType{{Name: "a:b", Event: "a:*", Fields: []string{"x", "y"}}, {Name: "c:d", Event: "c:d"}}
	for _, of := range types {
		r.AddMarkerType(of)
	}
	add := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	now := start
	for range 20_000 {
		now += n() % 10_000
		i := rng.IntN(rng.IntN(threads) + 1)
		id := r.Thread(p, 100+i, 0)
		switch rng.IntN(5) {
		case 0:
			e := profile.OnCPU{Time: now, Stack: stack(), Weight: n(), Amount: n(), CPU: rng.IntN(8)}
			on[i] = append(on[i], e)
			add(r.AddOnCPU(id, e))
		case 1:
			e := profile.OffCPU{
				Start: now, Duration: n(), Runnable: n(), State: profile.StateDead, Stack: stack(),
				Waker: profile.Task{PID: rng.IntN(99), TID: rng.IntN(99), Comm: name()}, WakerStack: stack(),
			}
			off[i] = append(off[i], e)
			add(r.AddOffCPU(id, e))
		case 2:
			e := profile.BlockIO{
				Queued: now - n(), Issued: now - n(), Completed: now, Device: name(), Sector: uint64(n()), Bytes: uint64(n()),
				Op: profile.BlockDiscard, Flags: profile.FlagFUA, Stack: stack(), File: name(),
			}
			io[i] = append(io[i], e)
			add(r.AddBlockIO(id, e))
		case 3:
			e := profile.Fault{Time: now, Address: rng.Uint64(), File: name(), Offset: uint64(n()), Major: n()&1 == 0, Latency: n(), Stack: stack()}
			faults[i] = append(faults[i], e)
			add(r.AddFault(id, e))
		case 4:
			e := profile.Marker{Time: now, Type: profile.MarkerTypeID(rng.IntN(len(types))), Stack: stack(), Weight: n()}
			for range types[e.Type].Fields {
				e.Values = append(e.Values, strings.Repeat(name(), rng.IntN(20)))
			}
			markers[i] = append(markers[i], e)
			add(r.AddMarker(id, e))
		}
		if rng.IntN(1000) == 0 {
			add(r.EndThread(id, now)) // events may still follow
		}
	}
	line := finish(t, r)
	for i := range line.Threads {
		// Threads are numbered in order of arrival; stacks are translated.
		k := line.Threads[i].TID - 100
		id := profile.ThreadID(i)
		for j := range on[k] {
			on[k][j].Stack++
		}
		for j := range off[k] {
			off[k][j].Stack++
			off[k][j].WakerStack++
		}
		for j := range io[k] {
			io[k][j].Stack++
		}
		for j := range faults[k] {
			faults[k][j].Stack++
		}
		for j := range markers[k] {
			markers[k][j].Stack++
		}
		for range 2 { // a timeline can be read several times
			for what, diff := range map[string]string{
				"samples":           cmp.Diff(on[k], all(t, line.Events.OnCPU(id))),
				"times off the CPU": cmp.Diff(off[k], all(t, line.Events.OffCPU(id))),
				"requests":          cmp.Diff(io[k], all(t, line.Events.BlockIO(id))),
				"faults":            cmp.Diff(faults[k], all(t, line.Events.Faults(id))),
				"markers":           cmp.Diff(markers[k], all(t, line.Events.Markers(id))),
				"types of markers":  cmp.Diff(types, line.MarkerTypes),
			} {
				if diff != "" {
					t.Fatalf("%s of thread %d (-want +got):\n%.2000s", what, k, diff)
				}
			}
		}
	}
}

// Sequences can be ended early, and several can be read at the same time.
func TestEventsSideBySide(t *testing.T) {
	r := newRecorder(t)
	id := r.Thread(r.Process(1, 0), 1, 0)
	for i := range int64(10_000) {
		if err := r.AddOnCPU(id, profile.OnCPU{Time: start + i}); err != nil {
			t.Fatal(err)
		}
	}
	line := finish(t, r)
	next, stop := iter.Pull2(line.Events.OnCPU(id))
	defer stop()
	for e := range line.Events.OnCPU(id) {
		other, err, ok := next()
		if err != nil || !ok || other != e {
			t.Fatalf("got %v, %v, %v, want %v", other, err, ok, e)
		}
		if e.Time == start+9_000 {
			return
		}
	}
	t.Error("the sequence ended early")
}

// PIDs and TIDs are reused, and names change.
func TestIdentity(t *testing.T) {
	r := newRecorder(t)
	before := r.Process(7, start-5)
	r.NameProcess(before, start, "sh")
	r.NameProcess(before, start+1, "sh")
	r.NameProcess(before, start+2, "tar")
	r.EndProcess(before, start+3)
	again := r.Process(7, start+4)
	thread := r.Thread(again, 8, start+5)
	r.NameThread(thread, start+5, "worker")
	if r.Process(7, start-5) != before || r.Thread(again, 8, start+5) != thread || before == again {
		t.Error("got another identity for the same process or thread, want the same")
	}
	line := finish(t, r)
	want := []profile.Process{
		{PID: 7, Names: []profile.Name{{At: start, Name: "sh"}, {At: start + 2, Name: "tar"}}, End: start + 3},
		{PID: 7, Start: start + 4},
	}
	if diff := cmp.Diff(want, line.Processes); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	threads := []profile.Thread{{Process: again, TID: 8, Names: []profile.Name{{At: start + 5, Name: "worker"}}, Start: start + 5}}
	if diff := cmp.Diff(threads, line.Threads); diff != "" {
		t.Errorf("threads (-want +got):\n%s", diff)
	}
}

// Counters sum up, and fall to 0 in intervals without events.
func TestCounters(t *testing.T) {
	r := newRecorder(t)
	p := r.Process(1, 0)
	for _, e := range []struct{ at, n int64 }{
		{start + 1, 10}, {start + 2, 10}, {start + 3*counterStep + 1, 5}, {start + 3*counterStep, 7}, {start + 4*counterStep + 1, 1},
	} {
		r.Count(p, profile.CounterRead, e.at, e.n)
	}
	c := finish(t, r).Counters[0]
	var steps [][2]int64
	for i := range c.Times {
		steps = append(steps, [2]int64{(c.Times[i] - start) / counterStep, c.Changes[i]})
	}
	want := [][2]int64{{0, 0}, {1, 20}, {2, 0}, {3, 0}, {4, 12}, {5, 1}, {6, 0}, {start / counterStep, 0}}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// A counter lasts as long as its process, even if the quantity changes only once.
func TestCounterLifetime(t *testing.T) {
	r := newRecorder(t)
	const begin, exit, end = start + counterStep/2, start + 10*counterStep + 3, start + 20*counterStep
	steady, exited := r.Process(1, begin), r.Process(2, begin)
	for _, p := range []profile.ProcessID{steady, exited} {
		r.Count(p, profile.CounterRSS, start+3*counterStep, 4096)
	}
	r.Count(exited, profile.CounterRSS, exit, -4096)
	r.EndProcess(exited, exit)
	line, err := r.Timeline(&profile.Profile{}, end, func(s profile.StackID) profile.StackID { return s })
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ last, left int64 }{{end, 4096}, {exit, 0}} {
		c := line.Counters[i]
		var left int64
		for _, change := range c.Changes {
			left += change
		}
		if c.Times[0] != begin || c.Times[len(c.Times)-1] != want.last || left != want.left || !slices.IsSorted(c.Times) {
			t.Errorf("counter %d: got times %v, changes %v; want times from %d to %d, and %d left", i, c.Times, c.Changes, begin, want.last, want.left)
		}
	}
}

func BenchmarkAddOnCPU(b *testing.B) {
	r := newRecorder(b)
	id := r.Thread(r.Process(1, 0), 1, 0)
	now := start
	for b.Loop() {
		now += 1_001_001
		if err := r.AddOnCPU(id, profile.OnCPU{Time: now, Stack: profile.StackID(now % 10_000), Weight: 1_001_001}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(r.spool.written)/float64(b.N), "bytes/event")
}

// A thread that is seen after its exit record ends when it was last seen, and so does its
// process. A thread that still runs has no end.
func TestEndAfterExit(t *testing.T) {
	r := newRecorder(t)
	exits, runs := r.Process(1, 0), r.Process(2, 0)
	for p, id := range map[profile.ProcessID]profile.ThreadID{exits: r.Thread(exits, 1, 0), runs: r.Thread(runs, 2, 0)} {
		if err := errors.Join(r.AddOnCPU(id, profile.OnCPU{Time: start + 200}), r.AddOffCPU(id, profile.OffCPU{Start: start + 210, Duration: 40})); err != nil {
			t.Fatal(err)
		}
		if p == runs {
			continue
		}
		r.EndProcess(p, start+150)
		if err := r.EndThread(id, start+150); err != nil {
			t.Fatal(err)
		}
	}
	line := finish(t, r)
	for i, want := range []int64{start + 250, 0} {
		for _, thread := range line.Threads {
			if thread.Process == profile.ProcessID(i) && thread.End != want {
				t.Errorf("got thread %+v, want its end at %d", thread, want)
			}
		}
		if got := line.Processes[i].End; got != want {
			t.Errorf("process %d: got end %d, want %d", i, got, want)
		}
	}
}
