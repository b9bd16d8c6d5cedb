package perfring

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/process"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/stackcopy"
	"fulgur/internal/unwind/stackend"
	"fulgur/internal/unwind/unwindmap"
	"fulgur/internal/unwind/unwindtest"
)

// Frames come back as from the kernel side, see unwindtest.AsRecorded.
func TestWord(t *testing.T) {
	frames := []unwind.Frame{
		{PC: 0x401000, Exact: true}, {PC: 0x402000}, {PC: 0x403000, Exact: true}, {PC: 0xffffffffff600000}, {PC: 1<<63 | 5},
	}
	for i, want := range unwindtest.AsRecorded(frames) {
		got := word(frames[i], i)
		exact := i == 0 || got&bpf.FrameExact != 0 && want.Exact
		if pc := got &^ bpf.FrameExact; pc != want.PC&^bpf.FrameExact || exact != want.Exact {
			t.Errorf("frame %d, %v: got %#x, want %v", i, frames[i], got, want)
		}
	}
}

// words returns a call chain of addresses and markers.
func words(list ...uint64) (b []byte) {
	for _, v := range list {
		b = binary.NativeEndian.AppendUint64(b, v)
	}
	return b
}

const inKernel, inUser = math.MaxUint64 - 127, math.MaxUint64 - 511 // PERF_CONTEXT_KERNEL and _USER

// The markers of a call chain are no frames, and separate the kernel's.
func TestChains(t *testing.T) {
	user := []unwind.Frame{{PC: 0x401000, Exact: true}, {PC: 0x402000}}
	kernel := []unwind.Frame{{PC: 0xffffffff81000000, Exact: true}, {PC: 0xffffffff81000100}}
	for _, test := range []struct {
		chain        []byte
		kernel, user []unwind.Frame
	}{
		{words(inUser, 0x401000, 0x402000), nil, user},
		{words(inKernel, 0xffffffff81000000, 0xffffffff81000100, inUser, 0x401000, 0x402000), kernel, user},
		{words(inKernel, 0xffffffff81000000, 0xffffffff81000100), kernel, nil},
		{nil, nil, nil},
	} {
		inner, outer := chains(test.chain)
		if diff := cmp.Diff([][]unwind.Frame{test.kernel, test.user}, [][]unwind.Frame{inner, outer}); diff != "" {
			t.Errorf("%#x (-want +got):\n%s", test.chain, diff)
		}
	}
}

// A stack in the kernel is the kernel's part before that of the program.
func TestKernelFrames(t *testing.T) {
	s := walkSource(t, os.Getpid(), func() {})
	chain := words(inKernel, 0xffffffff81000000, 0xffffffff81000100, inUser, 0x1000, 0x2000)
	s.take(Interpreted{Sample: perfevent.Sample{Stamp: perfevent.Stamp{Time: 5}, PID: os.Getpid(), TID: 8, Period: 10, Chain: chain}})
	walked := 0
	if err := s.walkReady(func(record []byte) error {
		walked++
		var r bpf.StackRecord
		if err := ringbuf.Copy(&r, record, unsafe.Offsetof(r.Frames)); err != nil {
			return err
		}
		want := []uint64{0xffffffff81000000, 0xffffffff81000100, 0x1000, 0x2000}
		if r.KernelFrames != 2 || r.UserFrames != 2 || !slices.Equal(r.Frames[:4], want) || stackend.End(r.KernelEnd) != stackend.FramePointer {
			t.Errorf("got %d and %d frames %#x, %v", r.KernelFrames, r.UserFrames, r.Frames[:4], stackend.End(r.KernelEnd))
		}
		return nil
	}, 0); err != nil || walked != 1 {
		t.Errorf("walked %d samples: %v", walked, err)
	}
}

// testSource returns a source without events.
func testSource(t target.Target) *Source {
	s := &Source{options: Options{Target: t}, programs: newPrograms(), seed: maphash.MakeSeed()}
	s.feed = &rings{options: &s.options, events: &events{threads: map[int]int{7: 7, 8: 7}, owners: map[uint64]int{1: 7, 2: 8}}}
	s.began = 5
	return s
}

// Children belong to the target if it includes them. Samples have the name that their thread had at the time, and each
// exec begins an epoch.
func TestFollow(t *testing.T) {
	for _, children := range []bool{false, true} {
		s := testSource(target.Target{Scope: target.Processes, PIDs: []int{7}, Children: children})
		take := func(pid, tid int) {
			s.take(Interpreted{Sample: perfevent.Sample{Stamp: perfevent.Stamp{Time: 5}, ID: uint64(min(tid-6, 2)), PID: pid, TID: tid, Period: 10}})
		}
		s.take(Interpreted{Sample: perfevent.Sample{Stamp: perfevent.Stamp{Time: 4}, ID: 1, PID: 7, TID: 7, Period: 10}}) // before the start
		s.apply(perfevent.Comm{PID: 7, TID: 7, Comm: "first"})
		take(7, 7)
		s.apply(perfevent.Comm{PID: 7, TID: 7, Comm: "a name of more than 15 bytes", Exec: true})
		take(7, 7)
		s.apply(perfevent.Fork{PID: 7, PPID: 7, TID: 8, PTID: 7})
		s.apply(perfevent.Comm{PID: 7, TID: 8, Comm: "thread"})
		take(7, 8)
		s.take(Interpreted{Sample: perfevent.Sample{Stamp: perfevent.Stamp{Time: 5}, ID: 1, PID: 7, TID: 8, Period: 10}}) // by its parent's event, too
		s.apply(perfevent.Fork{PID: 9, PPID: 7, TID: 9, PTID: 8})
		take(9, 9)
		s.apply(perfevent.Exit{PID: 9, PPID: 7, TID: 9, PTID: 7})
		if pids, _ := s.Targets(); !slices.Equal(pids, []int{7}) {
			t.Errorf("got the processes %v after a child has ended, want 7", pids)
		}
		if s.programs.unseen != 0 {
			t.Errorf("children %v: got %d threads that ended without a sample, want none", children, s.programs.unseen)
		}
		type seen struct {
			PID     int
			Comm    string
			Program int // among those seen so far
		}
		want := []seen{{7, "first", 0}, {7, "a name of more ", 1}, {7, "thread", 1}}
		if children {
			want = append(want, seen{9, "thread", 2})
		}
		var got []seen
		var epochs []uint64
		for _, q := range s.queue {
			if !slices.Contains(epochs, q.epoch) {
				epochs = append(epochs, q.epoch)
			}
			got = append(got, seen{q.PID, comm(q.comm), slices.Index(epochs, q.epoch)})
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("children %v (-want +got):\n%s", children, diff)
		}
		if s.double != 10 {
			t.Errorf("got samples of %d ns by two events, want 10", s.double)
		}
		if s.samples != uint64(len(want)) || s.periods != 10*s.samples {
			t.Errorf("got %d samples with the sum %d, want %d", s.samples, s.periods, len(want))
		}
	}
}

// Programs never share an epoch: addresses of theirs with the same epoch would get the same names.
func TestEpochs(t *testing.T) {
	s := testSource(target.Target{Scope: target.Command, PIDs: []int{7}, Children: true})
	epochs := map[uint64]bool{}
	note := func(pid int) {
		t.Helper()
		if e := s.programs.of(pid).epoch; epochs[e] {
			t.Errorf("process %d has epoch %d again", pid, e)
		} else {
			epochs[e] = true
		}
	}
	note(7)
	for _, pid := range []int{20, 21} { // the same steps in two children
		s.apply(perfevent.Fork{PID: pid, PPID: 7, TID: pid, PTID: 7})
		note(pid)
		s.apply(perfevent.Comm{PID: pid, TID: pid, Comm: "child", Exec: true})
		note(pid)
		if err := s.Remap(pid); err != nil {
			t.Error(err)
		}
		note(pid)
	}
	s.apply(perfevent.Comm{Stamp: perfevent.Stamp{Time: 9}, PID: 20, TID: 20, Comm: "next", Exec: true})
	s.take(Interpreted{Sample: perfevent.Sample{Stamp: perfevent.Stamp{Time: 8}, PID: 20, TID: 20, Period: 10}})
	if late := s.queue[0].epoch; epochs[late] || late == s.programs.of(20).epoch {
		t.Errorf("got epoch %d again for a late sample of the program before", late)
	}
	s.apply(perfevent.Exit{PID: 20, PPID: 7, TID: 20, PTID: 7})
	s.apply(perfevent.Fork{PID: 20, PPID: 21, TID: 20, PTID: 21})
	note(20)
}

// A process whose first thread ends lives on with the others, one of which may execute another program.
func TestFirstThreadEnds(t *testing.T) {
	s := testSource(target.Target{Scope: target.Command, PIDs: []int{7}, Children: true})
	s.apply(perfevent.Fork{PID: 9, PPID: 7, TID: 9, PTID: 7})
	s.apply(perfevent.Fork{PID: 9, PPID: 9, TID: 10, PTID: 9})
	s.apply(perfevent.Exit{PID: 9, PPID: 7, TID: 9, PTID: 7})
	if pids, _ := s.Targets(); !slices.Equal(pids, []int{7, 9}) && !slices.Equal(pids, []int{9}) {
		t.Errorf("got the processes %v, want 9 among them", pids)
	}
	s.apply(perfevent.Comm{PID: 9, TID: 9, Comm: "other", Exec: true})
	s.apply(perfevent.Mmap2{PID: 9, TID: 9})
	s.take(Interpreted{Sample: perfevent.Sample{Stamp: perfevent.Stamp{Time: 6}, PID: 9, TID: 9, Period: 10}})
	if len(s.queue) != 1 || comm(s.queue[0].comm) != "other" {
		t.Errorf("got the samples %+v, want one of the new program", s.queue)
	}
	s.apply(perfevent.Exit{PID: 9, PPID: 7, TID: 9, PTID: 7})
	if pids, _ := s.Targets(); slices.Contains(pids, 9) {
		t.Errorf("got the processes %v after the last thread has ended", pids)
	}
}

// The kernel ends the samples of a process that executes a program with other privileges. Other programs map code
// before they end.
func TestDepartures(t *testing.T) {
	s := testSource(target.Target{Scope: target.Command, PIDs: []int{7}, Children: true})
	run := func(pid int, name string, records ...perfevent.Record) {
		s.apply(perfevent.Fork{Stamp: perfevent.Stamp{Time: 6}, PID: pid, PPID: 7, TID: pid, PTID: 7})
		s.apply(perfevent.Comm{Stamp: perfevent.Stamp{Time: 7}, PID: pid, TID: pid, Comm: name, Exec: true})
		for _, r := range records {
			s.apply(r)
		}
		s.apply(perfevent.Exit{Stamp: perfevent.Stamp{Time: 8}, PID: pid, PPID: 7, TID: pid, PTID: 7})
	}
	run(8, "short", perfevent.Mmap2{PID: 8, TID: 8})
	run(9, "lost", perfevent.Lost{N: 1}) // perhaps of its mappings
	run(10, "sudo")
	for pid := range 2 * maxDepartures {
		run(100+pid, "su")
	}
	u := s.Unmeasured()
	want := Departure{PID: 10, Comm: "sudo", After: 3, at: 8}
	if len(u.Departures) != maxDepartures || u.Departures[0] != want || u.Departed != 1+2*maxDepartures {
		t.Errorf("got %+v, want %+v first, of %d", u, want, 1+2*maxDepartures)
	}
	if u.Brief != 2 {
		t.Errorf("got %d threads that ended without a sample, want 2", u.Brief)
	}
	if pids, _ := s.Targets(); !slices.Equal(pids, []int{7}) {
		t.Errorf("got the processes %v, want only 7", pids)
	}
}

// Lost samples count as taken, and all else that the counter has as unsampled.
func TestUnmeasured(t *testing.T) {
	s := testSource(target.Target{})
	clock, err := perfevent.ParseEvent("cpu-clock")
	if err != nil {
		t.Fatal(err)
	}
	s.options.Spec, s.samples, s.periods, s.total = clock, 4, 40, 100
	s.lost = 2
	if u := s.Unmeasured(); u.CPUTime != 0 {
		t.Errorf("got %d before the end, want none", u.CPUTime)
	}
	s.ended = true
	if u := s.Unmeasured(); u.CPUTime != 100 || u.Unsampled != 40 {
		t.Errorf("got %d of %d, want 40 of 100", u.Unsampled, u.CPUTime)
	}
	s.total = 50 // the last period has not ended
	if u := s.Unmeasured(); u.Unsampled != 0 {
		t.Errorf("got %d, want none", u.Unsampled)
	}
}

// walkSource returns a source that walks samples of pid, whose mappings it reads. It calls sync when it has read them.
func walkSource(t *testing.T, pid int, sync func()) *Source {
	t.Helper()
	s := testSource(target.Target{Scope: target.Processes, PIDs: []int{pid}})
	s.processes = process.NewTable(process.Options{Sync: sync})
	s.codes = unwindmap.NewCodes(nil, 1<<30)
	s.walker = stackcopy.New(unwindmap.Machine, s.find)
	t.Cleanup(func() {
		if err := errors.Join(s.codes.Close(), s.processes.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Each sample is an event with its stack, or counts.
func TestTimeline(t *testing.T) {
	for _, timeline := range []bool{false, true} {
		s := walkSource(t, os.Getpid(), func() {})
		s.options.Timeline = timeline
		s.take(Interpreted{Sample: perfevent.Sample{Stamp: perfevent.Stamp{Time: 5}, PID: os.Getpid(), TID: 8, CPU: 3, Period: 10}})
		var types []bpf.RecordType
		var id uint64
		if err := s.walkReady(func(record []byte) error {
			kind, err := stacks.RecordType(record)
			if types = append(types, kind); err != nil {
				return err
			}
			if kind == bpf.RecordStack {
				key, value, counted := stacks.NewRecordedCounts(0).First(record)
				if counted == timeline || counted && value != (stacks.Values{1, 10}) {
					t.Errorf("timeline %v: counts %v, as %v", timeline, counted, value)
				}
				id = key.ID
				return nil
			}
			event, err := oncpu.ParseEvent(record)
			if err != nil {
				return err
			}
			want := oncpu.Event{Type: uint32(bpf.RecordTimeline), Cpu: 3, Time: 5, Id: event.Id, Weight: 10, Pid: uint32(os.Getpid()), Tid: 8}
			if *event != want || event.Id == 0 {
				t.Errorf("got the event %+v, want %+v", event, want)
			}
			return nil
		}, 0); err != nil {
			t.Fatal(err)
		}
		want := []bpf.RecordType{bpf.RecordStack}
		if timeline {
			want = append(want, bpf.RecordTimeline)
		}
		if !slices.Equal(types, want) || id == 0 != timeline {
			t.Errorf("timeline %v: got records of the types %v, want %v", timeline, types, want)
		}
	}
}

// A walk that reads the mappings of a process drains the rings, whose samples wait for the next walk.
func TestWalkDrains(t *testing.T) {
	pid := os.Getpid()
	one := perfevent.Sample{Stamp: perfevent.Stamp{Time: 5}, PID: pid, TID: pid, Period: 10}
	drained := false
	var s *Source
	s = walkSource(t, pid, func() {
		drained = true
		s.take(Interpreted{Sample: one})
	})
	s.take(Interpreted{Sample: one})
	walked := 0
	walk := func() {
		if err := s.walkReady(func([]byte) error { walked++; return nil }, 0); err != nil {
			t.Fatal(err)
		}
	}
	if walk(); !drained || walked != 1 || len(s.queue) != 1 {
		t.Errorf("drained %v, walked %d samples, %d wait: want 1 and 1", drained, walked, len(s.queue))
	}
	if walk(); walked != 2 || len(s.queue) != 0 {
		t.Errorf("walked %d samples in all, %d wait: want 2 and none", walked, len(s.queue))
	}
}

// Nothing is told about a child that does not belong to the target after it has started: for all others, it ends then.
func TestChildrenEnd(t *testing.T) {
	for _, children := range []bool{false, true} {
		s := testSource(target.Target{Scope: target.Processes, PIDs: []int{7}, Children: children})
		s.ended = true
		fork := perfevent.Fork{Stamp: perfevent.Stamp{Time: 6}, PID: 9, PPID: 7, TID: 9, PTID: 7}
		s.feed.(*rings).fresh = []perfevent.Record{fork}
		var got []perfevent.Record
		if _, err := s.Drain(func(r perfevent.Record) { got = append(got, r) }); err != nil {
			t.Fatal(err)
		}
		want := []perfevent.Record{fork}
		if !children {
			want = append(want, perfevent.Exit(fork))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("children %v (-want +got):\n%s", children, diff)
		}
	}
}

// Samples of a process share its mappings until they change.
func TestMappings(t *testing.T) {
	pid := os.Getpid()
	s := walkSource(t, pid, func() {})
	now := monotonic.Now()
	s.apply(perfevent.Fork{Stamp: perfevent.Stamp{Time: now}, PID: pid, PPID: 1, TID: pid, PTID: 1})
	of := func(time uint64) *process.Mapping {
		maps := s.mappings(&sample{Interpreted: Interpreted{Sample: perfevent.Sample{Stamp: perfevent.Stamp{Time: time}, PID: pid}}})
		if len(maps) == 0 {
			t.Fatal("got no mappings")
		}
		return &maps[0]
	}
	p := s.programs.of(pid)
	first := of(now)
	p.mapped = math.MaxUint64 / 2 // whatever the time
	if of(now+1) != first {
		t.Error("got other mappings although nothing has changed")
	}
	if of(now-1) == first {
		t.Error("got the mappings of the program for a sample from before it began")
	}
	for _, r := range []perfevent.Record{perfevent.Mmap2{PID: pid}, perfevent.Lost{N: 1}} {
		s.apply(r)
		next := of(now)
		if next == first {
			t.Errorf("got the same mappings after %T", r)
		}
		first, p.mapped = next, math.MaxUint64/2
	}
	p.mapped = 0
	if of(now) == first {
		t.Error("got the same mappings after a long time")
	}
}

// The kernel's limit of open files limits the events. The busiest threads have theirs first.
func TestTooManyThreads(t *testing.T) {
	e := &events{limit: 3, refused: map[int]bool{}, rings: map[int]ring{}, owners: map[uint64]int{}}
	for range 2 {
		if has, err := e.addThread(task{tid: os.Getpid(), pid: os.Getpid()}, []int{0, 1, 2, 3}); has || err != nil {
			t.Errorf("got %v, %v beyond the limit", has, err)
		}
	}
	if e.without != 2 || len(e.open) != 0 {
		t.Errorf("got %d threads without events, and %d events, want 2 and none", e.without, len(e.open))
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	busy := task{tid: unix.Gettid(), pid: os.Getpid()}
	for stat := (procfs.Stat{}); stat.CPU == 0; {
		var err error
		if stat, err = procfs.Thread(busy.pid, busy.tid).Stat(); err != nil {
			t.Fatal(err)
		}
	}
	threads := []task{{tid: 1 << 30, pid: 1 << 30}, busy}
	if busiestFirst(threads); threads[0] != busy {
		t.Errorf("got %+v first", threads[0])
	}
}

// Rings take what may be locked besides the usual size, but no more than some megabytes in all.
func TestRingSize(t *testing.T) {
	for _, test := range []struct {
		cpus   int
		locked uint64
		want   int
	}{
		{2, 8 << 20, 4 << 20}, {8, 8 << 20, 1 << 20}, {64, 8 << 20, 512 << 10}, {2, 64 << 10, 512 << 10}, {4, math.MaxUint64, 4 << 20},
		{32, math.MaxUint64, 2 << 20}, {512, math.MaxUint64, 512 << 10}, {2, 0, 512 << 10},
	} {
		if got := ringSize(test.cpus, test.locked); got != test.want {
			t.Errorf("%d CPUs, %d bytes: got rings of %d bytes, want %d", test.cpus, test.locked, got, test.want)
		}
	}
}

// Rings are read several times before they are full.
func TestInterval(t *testing.T) {
	for _, test := range []struct {
		options Options
		ring    int
	}{
		{Options{Frequency: 49}, usualRing}, {Options{Frequency: 999}, usualRing}, {Options{Frequency: 4999}, smallestRing},
		{Options{Period: 1e6, Spec: perfevent.Spec{Type: 1}}, usualRing},
	} {
		s := testSource(target.Target{})
		s.options.Frequency, s.options.Period, s.options.Spec = test.options.Frequency, test.options.Period, test.options.Spec
		s.feed.(*rings).events.smallest = test.ring
		rate := test.options.Frequency
		if rate == 0 {
			rate = 1000
		}
		d := s.feed.(*rings).interval()
		if bytes := d.Seconds() * float64(rate) * (stackCopy + 1<<10); bytes > float64(test.ring)/2 && d > 1e6 || d < 1e6 || d > readAtLeast {
			t.Errorf("%+v: got %v, in which %.0f bytes of %d are written", test.options, d, bytes, test.ring)
		}
	}
}
