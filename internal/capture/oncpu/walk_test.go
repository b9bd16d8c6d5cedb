package oncpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/process"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/stackend"
	"fulgur/internal/unwind/unwindmap"
	"fulgur/internal/unwind/unwindtest"
)

// walked is a user stack that the kernel side walked.
type walked struct {
	frames []unwind.Frame
	end    stackend.End
	labels uint64 // the ID of the labels
}

// switches samples the threads of a process whenever they leave their CPU.
type switches struct {
	*Source
	tables    *unwindmap.Loader
	processes *process.Table
}

// sampleSwitches samples the context switches of process pid. If snapshots is set, stacks
// that may lack tables are sent as snapshots.
func sampleSwitches(t *testing.T, pid int, by bpf.UnwindMode, snapshots bool) *switches {
	t.Helper()
	tables, err := unwindmap.New(unwindmap.Options{Few: true})
	if err != nil {
		t.Fatal(err)
	}
	processes := process.NewTable(process.Options{})
	t.Cleanup(func() {
		if err := errors.Join(tables.Close(), tables.Close()); err != nil {
			t.Error(err)
		}
		_ = processes.Close()
	})
	if err := tables.Tasks(func(p int, image uint64) {
		if p == pid {
			tables.Prepare(processes.Mappings(pid), math.MaxUint64)
			tables.Request(pid, image, processes.Mappings(pid))
		}
	}); err != nil {
		t.Fatal(err)
	}
	tables.Wait(context.Background())

	spec, err := perfevent.ParseEvent("context-switches")
	if err != nil {
		t.Fatal(err)
	}
	tg := target.Target{Scope: target.Processes, PIDs: []int{pid}}
	s, err := Load(Options{Specs: []perfevent.Spec{spec}, Rate: Rate{Period: 1}, Options: probe.Options{
		SkipKernel: true, Snapshots: snapshots, Labels: snapshots,
		MaxDepth: bpf.MaxDepth, Scope: tg.Scope, ByThread: true,
		Unwind: by, Tables: tables.Replacements(),
		RingSize: 32 << 20, CountEntries: probe.DefaultCountEntries, SeenEntries: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Attach(tg); err != nil {
		t.Fatal(err)
	}
	if err := source.Start(s.Gate(), s); err != nil {
		t.Fatal(err)
	}
	return &switches{s, tables, processes}
}

// forget makes the kernel side send all stacks again.
func (s *switches) forget(t *testing.T) {
	t.Helper()
	seen := s.Maps[bpf.MapSeen]
	if err := seen.Put(uint32(0), make([]byte, seen.ValueSize())); err != nil {
		t.Fatal(err)
	}
	s.take(t)
}

// runAgain makes the kernel side send all stacks again, and lets the stopped process run
// for a short time. It returns the number of switches that the kernel did not sample.
func (s *switches) runAgain(t *testing.T, pid int) (unsampled int) {
	t.Helper()
	// The process may not have stopped yet, and a stack sent while others are dropped would
	// be missed.
	if err := unwindtest.Stop(pid); err != nil {
		t.Fatal(err)
	}
	s.forget(t)
	before := s.unsampled(t, pid)
	unwindtest.Resume(t, pid)
	if err := unwindtest.Stop(pid); err != nil {
		t.Fatal(err)
	}
	return s.unsampled(t, pid) - before
}

// take returns the stacks sent since the previous call, by thread, in order.
func (s *switches) take(t *testing.T) map[int][]walked {
	t.Helper()
	taken := map[int][]walked{}
	if err := s.Ring().ReadTo(s.Ring().Position(), func(r []byte) error {
		if bpf.RecordType(r[0]) != bpf.RecordStack {
			return nil
		}
		var record bpf.StackRecord
		if err := ringbuf.Copy(&record, r, unsafe.Offsetof(record.Frames)); err != nil {
			return err
		}
		if key, value, ok := s.Counts().First(r); ok {
			s.Counts().Add(key, value)
		}
		tid := int(record.Tid)
		w := walked{end: stackend.End(record.UserEnd), labels: record.Labels}
		for _, pc := range record.Frames[:int(record.KernelFrames)+int(record.UserFrames)] {
			exact := len(w.frames) == 0 || pc&bpf.FrameExact != 0
			w.frames = append(w.frames, unwind.Frame{PC: pc &^ bpf.FrameExact, Exact: exact})
		}
		w.frames = unwindtest.AsRecorded(w.frames)
		taken[tid] = append(taken[tid], w)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return taken
}

// unsampled grows with each switch of the process's threads that the kernel did not
// sample. The kernel drops samples while another BPF program or an operation on a map
// runs on the CPU, or is interrupted there.
func (s *switches) unsampled(t *testing.T, pid int) (n int) {
	t.Helper()
	samples, err := s.StatPerCPU(bpf.StatSamples)
	if err != nil {
		t.Fatal(err)
	}
	for _, onCPU := range samples {
		n -= int(onCPU)
	}
	for _, tid := range unwindtest.Threads(pid) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
		if err != nil {
			continue // the thread has exited
		}
		for line := range strings.Lines(string(status)) {
			// voluntary_ctxt_switches and nonvoluntary_ctxt_switches
			if name, value, _ := strings.Cut(line, ":"); strings.HasSuffix(name, "voluntary_ctxt_switches") {
				switches, err := strconv.Atoi(strings.TrimSpace(value))
				if err != nil {
					t.Fatal(err)
				}
				n += switches
			}
		}
	}
	return n
}

// TestWalkStopped stops programs at random moments. It compares the stacks that the
// kernel side walked when the threads left their CPUs with the stacks that
// [unwind.Walker] and the installed debuggers find in the stopped threads.
// FULGUR_UNWIND_STACKS is the number of stacks per program, and adds programs.
func TestWalkStopped(t *testing.T) {
	testenv.Root(t)
	moments, err := strconv.Atoi(os.Getenv("FULGUR_UNWIND_STACKS"))
	var sum unwindtest.Tally
	if err != nil {
		moments = 5
	}
	for _, p := range unwindtest.Selected(err == nil) {
		t.Run(p.Name, func(t *testing.T) {
			command := p.Command(t)
			sum.Merge(checkStopped(t, command, moments, p.Cut(t, command[0])))
		})
	}
	t.Log(&sum)
}

func checkStopped(t *testing.T, command []string, moments int, cut unwindtest.Cut) (sum unwindtest.Tally) {
	pid := unwindtest.Start(t, command)
	debuggers := unwindtest.Debuggers(t)
	s := sampleSwitches(t, pid, bpf.UnwindByBoth, false)
	files := unwindtest.Tables{}
	outcomes, examples := map[string]int{}, map[string]int{}
	for range moments {
		unsampled := s.runAgain(t, pid)
		got := s.take(t)
		p, err := unwindtest.Open(files, pid)
		if err != nil {
			t.Fatal(err)
		}
		w := p.Walker()
		threads := map[int]*stopped{}
		for _, tid := range unwindtest.Threads(pid) {
			regs, err := unwindtest.Registers(tid)
			if err != nil {
				testenv.Skip(t, "needs the right to trace processes: %v", err)
			}
			frames, end := w.Walk(regs, nil, bpf.MaxDepth)
			threads[tid] = &stopped{regs, unwindtest.AsRecorded(frames), end, map[string][]uint64{}}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		for _, d := range debuggers {
			found := d.Stacks(t, pid)
			for tid, thread := range threads {
				thread.theirs[d.Name] = found[tid]
			}
		}
		for tid, thread := range threads {
			if len(got[tid]) == 0 {
				outcomes["has not run"]++
				continue
			}
			what, mine := thread.compare(got, tid)
			if what == "different" && unsampled > 0 {
				outcomes["not sampled"]++ // this stack or an earlier one
				continue
			}
			outcomes[what]++
			if what == "different" {
				t.Errorf("thread %d:\n got %v\nwant %v (%v)", tid, got[tid], thread.frames, thread.end)
			}
			if after, err := unwindtest.Registers(tid); err != nil || after != thread.regs {
				outcomes["moved meanwhile"]++ // some debuggers let the thread run
				continue
			}
			for name, how := range sum.Add(cut(mine, thread.theirs)) {
				if examples[name+what]++; how != unwindtest.Equal && examples[name+what] < 3 {
					t.Logf("thread %d: %v (%v) is %s %s's %#x", tid, mine, thread.end, how, name, thread.theirs[name])
				}
			}
		}
	}
	for what, n := range outcomes {
		t.Logf("%d %s", n, what)
		if !strings.HasPrefix(what, "equal") && n == moments {
			t.Errorf("got only stacks that are %s", what)
		}
	}
	t.Log(&sum)
	return sum
}

// stopped is the state of a stopped thread.
type stopped struct {
	regs   unwind.Registers
	frames []unwind.Frame
	end    stackend.End
	theirs map[string][]uint64 // by debugger name
}

// compare compares the last stack of the thread from the kernel side with the reference walk.
// It returns the result and the frames to compare with debuggers.
func (s *stopped) compare(got map[int][]walked, tid int) (what string, frames []unwind.Frame) {
	last := got[tid][len(got[tid])-1]
	what = last.compare(s.frames, s.end)
	if what == "different" {
		// The kernel side sends each stack once, and a goroutine may run on several threads.
		for _, earlier := range slices.Concat(slices.Collect(maps.Values(got))...) {
			if strings.HasPrefix(earlier.compare(s.frames, s.end), "equal") {
				what, last = "equal to an earlier one", earlier
			}
		}
	}
	return what, last.frames
}

// TestWalkChain is like TestWalkStopped with frame pointers, in a program compiled with
// them. The C library has none.
func TestWalkChain(t *testing.T) {
	testenv.Root(t)
	p := unwindtest.FramePointers
	pid := unwindtest.Start(t, p.Command(t))
	s := sampleSwitches(t, pid, bpf.UnwindByFramePointers, false)
	right := 0
	for range 20 {
		unsampled := s.runAgain(t, pid)
		got := s.take(t)[pid]
		stopped, err := unwindtest.Open(unwindtest.Tables{}, pid)
		if err != nil {
			t.Fatal(err)
		}
		regs, err := unwindtest.Registers(pid)
		if err != nil {
			testenv.Skip(t, "needs the right to trace processes: %v", err)
		}
		want := chain(regs, stopped.Walker().Read)
		if slices.ContainsFunc(got, func(w walked) bool {
			return slices.Equal(w.frames, want) && w.end == stackend.FramePointer
		}) {
			right++
		} else if unsampled <= 0 {
			t.Errorf("got %v, want %v", got, want)
		}
		if err := stopped.Close(); err != nil {
			t.Error(err)
		}
	}
	if t.Logf("%d stacks are right", right); right == 0 {
		t.Error("no stack was compared")
	}
}

// chain walks a stack by frame pointers.
func chain(regs unwind.Registers, read func(addr uint64, buf []byte) bool) []unwind.Frame {
	frames := []unwind.Frame{{PC: regs.PC, Exact: true}}
	fp := unwindtest.FramePointer(regs)
	for fp >= 4096 && fp%8 == 0 && len(frames) < bpf.MaxDepth {
		var frame [16]byte
		if !read(fp, frame[:]) {
			break
		}
		pc := binary.LittleEndian.Uint64(frame[8:])
		if pc == 0 {
			break
		}
		frames = append(frames, unwind.Frame{PC: pc})
		fp = binary.LittleEndian.Uint64(frame[:])
	}
	return unwindtest.AsRecorded(frames)
}

// compare compares the stack with want, as far as the tables are reliable.
func (w walked) compare(want []unwind.Frame, end stackend.End) string {
	// Reading a thread's registers may make it take a signal.
	for i := 1; i < len(want) && len(want) > len(w.frames); i++ {
		if want[i].Exact && slices.Equal(w.frames, want[i:]) {
			return "equal but for a signal that came since"
		}
	}
	switch {
	case slices.Equal(w.frames, want) && w.end == end:
		return fmt.Sprintf("equal (%v)", end)
	case len(w.frames) > 1 && w.frames[0].PC+2 == want[0].PC && slices.Equal(w.frames[1:], want[1:]):
		return "equal but for a system call that is about to begin anew"
	case len(w.frames) < len(want) || !slices.Equal(w.frames[:len(want)], want):
		return "different"
	case end == stackend.NoTable && len(w.frames) > len(want):
		return "equal, then by frame pointers"
	case end == stackend.NoTable && (w.end == stackend.FramePointer || w.end == stackend.Broken):
		return "equal, without a frame pointer"
	case end == stackend.NoTable && w.end == stackend.NoMapping:
		return "equal, then code that is too new"
	}
	return "different"
}
