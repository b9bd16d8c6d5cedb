package perfring

import (
	"cmp"
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/looks"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
	"fulgur/internal/unwind/stackend"
)

const (
	process1 = 1 << 30 // of no process
	thread1  = process1 + 1
	thread2  = process1 + 2
	other    = process1 + 100 // another process
)

func stamp(at uint64) perfevent.Stamp { return perfevent.Stamp{Time: at} }

func out(at uint64, tid int) perfevent.Record {
	return perfevent.Switch{Stamp: stamp(at), PID: process1, TID: tid, Out: true}
}

func preempted(at uint64, tid int) perfevent.Record {
	return perfevent.Switch{Stamp: stamp(at), PID: process1, TID: tid, Out: true, Preempted: true}
}

func in(at uint64, tid int) perfevent.Record {
	return perfevent.Switch{Stamp: stamp(at), PID: process1, TID: tid}
}

// seenAt is a look of which nothing but the reason in the kernel is known.
func seenAt(from, to uint64, tid int) perfevent.Record {
	return looks.Look{Stamp: stamp(to), From: from, PID: process1, TID: tid, State: 'D', Call: procfs.NoCall, Function: "pipe_read", Forbidden: true}
}

// shown is a wait as an event shows it.
type shown struct {
	tid        int
	begin, end uint64
	state      bpf.OffCPUStateClass
	user       stackend.End
	kernel     string
}

// waitsOf returns the waits that records show, in a measurement from 100 to 1000.
func waitsOf(t *testing.T, o WaitOptions, atStart map[int]int, records ...perfevent.Record) (all []shown, s *Source) {
	t.Helper()
	s = testSource(target.Target{Scope: target.Processes, PIDs: []int{process1}})
	s.options.Timeline = true
	s.waits = newWaits(o, atStart)
	s.began, s.endedAt, s.ended = 100, 1000, true
	for _, r := range records {
		s.applyWaits(r)
	}
	stacksOf := map[uint64]bpf.StackRecord{}
	if err := s.passWaits(func(record []byte) error {
		kind, err := stacks.RecordType(record)
		if err != nil {
			return err
		}
		if kind == bpf.RecordStack {
			var half bpf.StackRecord
			err := ringbuf.Copy(&half, record, uintptr(len(record)))
			stacksOf[half.Id] = half
			return err
		}
		e, err := ringbuf.As[offcpu.Event](record, offcpu.EventSize)
		if err != nil {
			return err
		}
		one := shown{tid: int(e.Tid), begin: e.Time, end: e.Time + e.Duration, state: bpf.OffCPUStateClass(e.State)}
		half, known := stacksOf[e.Id]
		if !known || half.Pid != process1 || half.UserFrames != 0 {
			t.Errorf("%+v: got the stack %+v", e, half)
		}
		one.user = stackend.End(half.UserEnd)
		if inKernel := stacksOf[e.Kernel]; e.Kernel != 0 {
			one.kernel = s.KernelName(inKernel.Frames[0])
		}
		if waited := e.Waiting > 0; waited != (one.state == bpf.OffCPUStateClassSTATE_RUNNABLE) || waited && e.Waiting != e.Duration {
			t.Errorf("%+v waited for %d ns for a CPU", one, e.Waiting)
		}
		all = append(all, one)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(all, func(a, b shown) int { return cmp.Compare(a.begin, b.begin) })
	return all, s
}

// The switches of threads become waits, with looks that are true of them, and no others.
func TestWaits(t *testing.T) {
	const (
		sleeps, disk, runnable    = bpf.OffCPUStateClassSTATE_SLEEPING, bpf.OffCPUStateClassSTATE_DISK_SLEEP, bpf.OffCPUStateClassSTATE_RUNNABLE
		tooShort, forbidden, none = stackend.TooShort, stackend.Forbidden, stackend.None
	)
	known := map[int]int{thread1: process1}
	for name, test := range map[string]struct {
		options WaitOptions
		records []perfevent.Record
		want    []shown
		missed  uint64
	}{
		"a wait":             {WaitOptions{}, []perfevent.Record{out(200, thread2), in(300, thread2)}, []shown{{thread2, 200, 300, sleeps, tooShort, ""}}, 0},
		"a preemption":       {WaitOptions{}, []perfevent.Record{preempted(200, thread2), in(300, thread2)}, []shown{{thread2, 200, 300, runnable, none, ""}}, 0},
		"looked at":          {WaitOptions{}, []perfevent.Record{out(200, thread2), seenAt(210, 220, thread2), in(300, thread2)}, []shown{{thread2, 200, 300, disk, forbidden, "pipe_read"}}, 0},
		"a look from before": {WaitOptions{}, []perfevent.Record{out(200, thread2), seenAt(199, 220, thread2), in(300, thread2)}, []shown{{thread2, 200, 300, sleeps, tooShort, ""}}, 0},
		"a look too late":    {WaitOptions{}, []perfevent.Record{out(200, thread2), in(300, thread2), seenAt(210, 310, thread2)}, []shown{{thread2, 200, 300, sleeps, tooShort, ""}}, 0},
		"a look at the next": {WaitOptions{}, []perfevent.Record{out(200, thread2), in(300, thread2), out(305, thread2), seenAt(210, 310, thread2), in(320, thread2)},
			[]shown{{thread2, 200, 300, sleeps, tooShort, ""}, {thread2, 305, 320, sleeps, tooShort, ""}}, 0},
		"a look at a preemption":   {WaitOptions{}, []perfevent.Record{preempted(200, thread2), seenAt(210, 220, thread2), in(300, thread2)}, []shown{{thread2, 200, 300, runnable, none, ""}}, 0},
		"two events of a thread":   {WaitOptions{}, []perfevent.Record{out(200, thread2), out(201, thread2), in(300, thread2), in(301, thread2)}, []shown{{thread2, 200, 300, sleeps, tooShort, ""}}, 0},
		"before the start":         {WaitOptions{}, []perfevent.Record{in(50, thread1), out(60, thread1), in(150, thread1)}, []shown{{thread1, 100, 150, sleeps, tooShort, ""}}, 0},
		"over before the start":    {WaitOptions{}, []perfevent.Record{out(60, thread1), in(90, thread1)}, nil, 0},
		"asleep at the start":      {WaitOptions{}, []perfevent.Record{seenAt(20, 30, thread1), in(150, thread1)}, []shown{{thread1, 100, 150, disk, forbidden, "pipe_read"}}, 0},
		"off the CPU at the start": {WaitOptions{}, []perfevent.Record{in(150, thread1)}, []shown{{thread1, 100, 150, sleeps, tooShort, ""}}, 0},
		"all the time":             {WaitOptions{}, []perfevent.Record{seenAt(20, 30, thread1)}, []shown{{thread1, 100, 1000, disk, forbidden, "pipe_read"}}, 0},
		"not started yet":          {WaitOptions{FromStart: true}, []perfevent.Record{in(150, thread1), out(160, thread1), in(170, thread1)}, []shown{{thread1, 160, 170, sleeps, tooShort, ""}}, 0},
		"at the end":               {WaitOptions{}, []perfevent.Record{out(900, thread2)}, []shown{{thread2, 900, 1000, sleeps, tooShort, ""}}, 0},
		"beyond the end":           {WaitOptions{}, []perfevent.Record{out(990, thread2), in(1010, thread2), out(1020, thread2), in(1030, thread2)}, []shown{{thread2, 990, 1000, sleeps, tooShort, ""}}, 0},
		"a new thread": {WaitOptions{}, []perfevent.Record{
			perfevent.Fork{Stamp: stamp(200), PID: process1, TID: thread2, PPID: process1, PTID: thread1}, in(250, thread2), out(300, thread2), in(310, thread2),
		}, []shown{{thread2, 300, 310, sleeps, tooShort, ""}}, 0},
		"an unknown thread": {WaitOptions{}, []perfevent.Record{in(250, thread2), out(300, thread2), in(310, thread2)}, []shown{{thread2, 300, 310, sleeps, tooShort, ""}}, 0},
		"the end of a thread": {WaitOptions{}, []perfevent.Record{
			out(200, thread2), in(210, thread2), perfevent.Exit{Stamp: stamp(220), PID: process1, TID: thread2}, out(230, thread2+1), in(240, thread2+1),
		}, []shown{{thread2, 200, 210, sleeps, tooShort, ""}, {thread2 + 1, 230, 240, sleeps, tooShort, ""}}, 0},
		// Between 250 and 350, any number of switches may be missing.
		"lost records": {WaitOptions{}, []perfevent.Record{
			out(200, thread2), gap{stamp(250), 350}, in(260, thread2), out(300, thread2), in(340, thread2), out(345, thread2), in(360, thread2), out(400, thread2), in(410, thread2),
		}, []shown{{thread2, 400, 410, sleeps, tooShort, ""}}, 1},
		"a look at lost records": {WaitOptions{}, []perfevent.Record{out(200, thread2), gap{stamp(250), 350}, seenAt(340, 360, thread2), in(400, thread2)}, nil, 1},
		"limits": {WaitOptions{Shortest: 10, Longest: 20}, []perfevent.Record{
			out(200, thread2), in(209, thread2), out(300, thread2), in(310, thread2), out(400, thread2), in(420, thread2), out(500, thread2), in(521, thread2),
		}, []shown{{thread2, 300, 310, sleeps, tooShort, ""}, {thread2, 400, 420, sleeps, tooShort, ""}}, 0},
		"another process": {WaitOptions{}, []perfevent.Record{
			perfevent.Switch{Stamp: stamp(200), PID: other, TID: other, Out: true}, perfevent.Switch{Stamp: stamp(210), PID: other, TID: other},
			perfevent.Switch{Stamp: stamp(300), PID: -1, TID: -1, Out: true}, perfevent.Switch{Stamp: stamp(310)},
		}, nil, 0},
	} {
		atStart := known
		got, s := waitsOf(t, test.options, atStart, test.records...)
		if diff := gocmp.Diff(test.want, got, gocmp.AllowUnexported(shown{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		stats, err := s.Waits().Stats()
		if err != nil || stats.Samples != uint64(len(test.want)) || stats.Losses[profile.LossMissed] != test.missed {
			t.Errorf("%s: got %d waits and %d missed, %v; want %d and %d", name, stats.Samples, stats.Losses[profile.LossMissed], err, len(test.want), test.missed)
		}
		var sum time.Duration
		for _, w := range test.want {
			sum += time.Duration(w.end - w.begin)
		}
		if w := s.WaitStats(); w.Time != sum || w.Preempted+w.TooShort+w.Forbidden != sum {
			t.Errorf("%s: got the times %+v, want %d in all", name, w, sum)
		}
	}
}

// Waits without a timeline are counted, by thread if that is wanted.
func TestWaitsCounted(t *testing.T) {
	for _, byThread := range []bool{false, true} {
		s := testSource(target.Target{Scope: target.Processes, PIDs: []int{process1}})
		s.options.ByThread, s.began = byThread, 1
		s.waits = newWaits(WaitOptions{Index: 1}, nil)
		for i := range 3 {
			at := uint64(100 * (i + 1))
			s.applyWaits(out(at, thread2))
			s.applyWaits(in(at+7, thread2))
		}
		sent := 0
		if err := s.passWaits(func([]byte) error { sent++; return nil }); err != nil {
			t.Fatal(err)
		}
		total := s.Waits().Counts().Total()
		if sent != 1 || len(total) != 1 {
			t.Errorf("got %d records and %d sums, want one of each: %v", sent, len(total), total)
		}
		for key, values := range total {
			wantTID := uint32(0)
			if byThread {
				wantTID = thread2
			}
			if key.Source != 1 || key.TID != wantTID || key.Detail != offcpu.Slept || values != (stacks.Values{3, 21, 0, 21}) {
				t.Errorf("got %+v: %v, want three waits of 7 ns", key, values)
			}
		}
	}
}

// Looks go to threads that wait, each wait once, the longest wait first, for a limited time.
func TestLookout(t *testing.T) {
	runtime.LockOSThread() // see threadTime
	defer runtime.UnlockOSThread()
	const ms = uint64(time.Millisecond)
	l := newLookout(map[int]int{thread1: process1})
	var asked []int
	errs := map[int]error{}
	l.look = func(_, tid int) (looks.Look, error) {
		asked = append(asked, tid)
		return looks.Look{TID: tid}, errs[tid]
	}
	round := func(at uint64) (found []int) {
		t.Helper()
		asked = nil
		seen, left := l.run(l.round(at), func(int) int { return process1 })
		l.due = append(left, l.due...)
		for _, one := range seen {
			found = append(found, one.TID)
		}
		return found
	}
	check := func(what string, got []int, want ...int) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: got threads %v, want %v", what, got, want)
		}
	}
	errs[thread1] = looks.ErrRuns
	check("a thread that runs at the start", round(ms))
	delete(errs, thread1)
	check("it may wait later", round(2*ms), thread1)
	check("the same wait", round(3*ms))
	l.note(out(10*ms, thread2))
	l.note(out(10*ms+1, thread1))
	l.note(preempted(10*ms, thread2+1))
	check("a short wait", round(10*ms+5))
	check("two waits", round(12*ms), thread2, thread1)
	check("the same waits", round(13*ms))
	l.note(in(14*ms, thread2))
	l.note(out(15*ms, thread2))
	l.note(in(14*ms+1, thread2)) // of another CPU
	errs[thread2] = looks.ErrGone
	check("no look", round(20*ms))
	check("asked once", asked, thread2)
	check("not again", round(21*ms))
	check("not asked again", asked)
	l.note(out(30*ms, thread1))
	l.note(in(31*ms, thread1))
	check("over", round(40*ms))
	check("not asked", asked)
	l.note(perfevent.Exit{Stamp: stamp(50 * ms), PID: process1, TID: thread1})
	if _, known := l.latest[thread1]; known {
		t.Error("a thread is known after its end")
	}

	// Each look takes a third of the time of a round.
	l = newLookout(nil)
	asked = nil
	l.look = func(_, tid int) (looks.Look, error) {
		asked = append(asked, tid)
		time.Sleep(maxRound/3 + time.Millisecond)
		return looks.Look{}, errors.New("none")
	}
	for i := range 1000 {
		l.note(out(uint64(i+1), process1+i))
	}
	_, left := l.run(l.round(ms*10), func(int) int { return process1 })
	if len(asked) > 3 || len(asked)+len(left) != 1000 || l.next.IsZero() {
		t.Errorf("looked at %d threads, and left %d, of 1000", len(asked), len(left))
	}
	for i := range 2 * maxDue {
		l.note(out(ms+uint64(i), process1+i%5000))
	}
	if len(l.due) > maxDue {
		t.Errorf("%d waits are due, want %d at most", len(l.due), maxDue)
	}
}

// A look at a thread that waits is walked like a sample, and waits for unwind tables as one.
func TestLookWalked(t *testing.T) {
	pid := os.Getpid()
	s := walkSource(t, pid, func() {})
	s.options.Timeline, s.began = true, 1
	s.waits = newWaits(WaitOptions{}, nil)
	s.applyWaits(perfevent.Switch{Stamp: stamp(200), PID: pid, TID: 8, Out: true})
	s.applyWaits(looks.Look{Stamp: stamp(220), From: 210, PID: pid, TID: 8, State: 'S', Call: procfs.NoCall})
	s.applyWaits(perfevent.Switch{Stamp: stamp(300), PID: pid, TID: 8})
	var types []bpf.RecordType
	keep := func(record []byte) error {
		kind, err := stacks.RecordType(record)
		types = append(types, kind)
		if kind == bpf.RecordStack {
			if _, _, counted := stacks.NewRecordedCounts(0).First(record); counted {
				t.Error("the stack of a look counts as a sample")
			}
		}
		return err
	}
	if err := s.passWaits(keep); err != nil || len(types) != 0 {
		t.Errorf("got the records %v, %v before the walk, want none", types, err)
	}
	if err := errors.Join(s.walkReady(keep, 0), s.passWaits(keep)); err != nil || !slices.Equal(types, []bpf.RecordType{bpf.RecordStack, bpf.RecordTimeline}) {
		t.Errorf("got the records %v, %v; want a stack and an event", types, err)
	}
	if s.held != 0 || len(s.waits.ended) != 0 {
		t.Errorf("%d bytes and %d waits are left", s.held, len(s.waits.ended))
	}
}
