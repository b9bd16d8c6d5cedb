package oncpu

import (
	"context"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
	"fulgur/internal/unwind/stackend"
	"fulgur/internal/unwind/unwindtest"
)

// snapshots returns the snapshots sent since the previous call, with the given ID of labels. late
// is the number of stacks that were not snapshots, because the kernel side no longer waited for
// tables: the process has run for longer than that since its first request.
func (s *switches) snapshots(t *testing.T, labels uint64) (all []stacks.Snapshot, late int) {
	t.Helper()
	if err := s.Ring().ReadTo(s.Ring().Position(), func(r []byte) error {
		if bpf.RecordType(r[0]) != bpf.RecordSnapshot {
			late++
			return nil
		}
		r = slices.Clone(r)
		stack := r[unsafe.Offsetof(bpf.Snapshot{}.Record):]
		binary.NativeEndian.PutUint64(stack[unsafe.Offsetof(bpf.StackRecord{}.Labels):], labels)
		sn, err := stacks.ParseSnapshot(r, stacks.Snapshot{})
		all = append(all, sn)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all, late
}

// Without unwind tables for a process, the kernel side sends snapshots of its stacks.
// Once the tables are loaded, a walk over a snapshot finds the same frames.
func TestSnapshots(t *testing.T) {
	testenv.OneKernel(t)
	testenv.Root(t)
	for _, p := range unwindtest.Selected(false) {
		t.Run(p.Name, func(t *testing.T) {
			pid := unwindtest.Start(t, p.Command(t))
			s := sampleSwitches(t, pid, bpf.UnwindByBoth, true)
			files, compared, beyond := unwindtest.Tables{}, 0, 0
			for round := 0; round < 5 || compared+beyond == 0 && round < 100; round++ {
				s.tables.Reset()
				unsampled := s.runAgain(t, pid)
				taken, late := s.snapshots(t, 0)
				stopped, err := unwindtest.Open(files, pid)
				if err != nil {
					t.Fatal(err)
				}
				mappings := s.processes.Mappings(pid)
				s.tables.Prepare(mappings, math.MaxUint64)
				s.tables.Wait(context.Background())
				past := s.tables.Past(mappings)
				for _, sn := range taken {
					if sn.PID != pid {
						t.Fatalf("snapshot of process %d, want %d", sn.PID, pid)
					}
					lacks := uint64(0)
					if err := past.Using(func(layout uint64) (err error) {
						lacks, err = s.Rewalk(sn, layout)
						return err
					}); err != nil || lacks != 0 {
						t.Fatalf("got %v, a table for %#x is missing; want the stack", err, lacks)
					}
				}
				got := s.take(t)
				all := slices.Concat(slices.Collect(maps.Values(got))...)
				for _, tid := range unwindtest.Threads(pid) {
					if len(got[tid]) == 0 {
						continue // it has not run
					}
					regs, err := unwindtest.Registers(tid)
					if err != nil {
						t.Fatal(err)
					}
					want, end := stopped.Walker().Walk(regs, nil, bpf.MaxDepth)
					equal := func(w walked) bool { return strings.HasPrefix(w.compare(want, end), "equal") }
					// A snapshot holds only the innermost frames of a stack with large
					// frames, and nothing that tells where a goroutine's continues.
					begins := func(w walked) bool {
						return w.end == stackend.Fault && len(w.frames) <= len(want) && slices.Equal(w.frames, want[:len(w.frames)])
					}
					switch {
					case slices.ContainsFunc(all, equal): // a stack that two threads had is sent once
						compared++
					case slices.ContainsFunc(all, begins):
						beyond++
					case unsampled > 0 || late > 0: // this stack or an earlier one
					default:
						t.Errorf("thread %d: got %v of %d snapshots, want %v (%v)", tid, got[tid], len(taken), want, end)
					}
				}
				past.Close()
				if err := stopped.Close(); err != nil {
					t.Error(err)
				}
			}
			t.Logf("%d whole stacks, %d larger than the snapshot", compared, beyond)
			if compared+beyond == 0 || p.Fits && beyond > 0 {
				t.Errorf("got %d whole stacks and %d larger than the snapshot, want some, all whole: %t", compared, beyond, p.Fits)
			}
		})
	}
}

// Without a layout, a snapshot is walked by frame pointers, and the stack's end says so. Labels of
// a process that has ended remain: like it, this one has no entry among the processes with labels.
func TestSnapshotWithoutLayout(t *testing.T) {
	testenv.Root(t)
	pid := unwindtest.Start(t, unwindtest.FramePointers.Command(t))
	s := sampleSwitches(t, pid, bpf.UnwindByBoth, true)
	const labels = 0x1235
	pending := 0
	var taken []stacks.Snapshot
	for attempts, missed := 0, 1; missed > 0 && attempts < 100; attempts++ {
		pending += len(taken)
		s.tables.Reset()
		missed = s.runAgain(t, pid)
		var late int
		taken, late = s.snapshots(t, labels)
		missed += late
	}
	if len(taken) == 0 {
		t.Fatal("got no snapshot")
	}
	last := taken[len(taken)-1]
	if _, err := s.Rewalk(last, 0); err != nil {
		t.Fatal(err)
	}
	got := s.take(t)[pid]
	stopped, err := unwindtest.Open(unwindtest.Tables{}, pid)
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.Close()
	regs, err := unwindtest.Registers(pid)
	if err != nil {
		t.Fatal(err)
	}
	want := chain(regs, stopped.Walker().Read)
	if len(got) != 1 || len(got[0].frames) == 0 || got[0].end != stackend.NotReady {
		t.Fatalf("got %v, want a stack that ends because the process has no layout", got)
	}
	// A snapshot holds only the innermost frames of a stack with large frames.
	if held := got[0].frames; len(held) > len(want) || !slices.Equal(held, want[:len(held)]) {
		t.Errorf("got %v, want %v or its innermost frames", got, want)
	}
	stats, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if lost := stats.Losses[profile.LossUnlabeled]; got[0].labels != labels || lost > 0 {
		t.Errorf("got labels %#x and %d samples without theirs, want %#x and 0", got[0].labels, lost, labels)
	}
	if err := s.Counts().Finish(); err != nil {
		t.Fatal(err)
	}
	var counted uint64
	for _, v := range s.Counts().Total() {
		counted += v.Samples()
	}
	// The other snapshots are still pending.
	if want := stats.Samples - uint64(pending+len(taken)-1); counted > want || counted == 0 {
		t.Errorf("got %d samples counted, want 1 to %d", counted, want)
	}
}

// Until user space has answered a request for new mappings, the kernel side sends snapshots of
// stacks that end at the address. After that, it soon gives up, as at addresses without code.
func TestSnapshotsUntilAnswered(t *testing.T) {
	testenv.Root(t)
	pid := unwindtest.Start(t, unwindtest.FramePointers.Command(t))
	s := sampleSwitches(t, pid, bpf.UnwindByBoth, true)
	image, ok := s.tables.Image(pid)
	if !ok {
		t.Fatal("the process has no layout")
	}
	const (
		after = 60 * time.Millisecond  // twice the time that an answer leaves
		limit = 800 * time.Millisecond // after a second, the kernel side gives up in any case
	)
	// Both results must come before the limit, which a busy machine may exceed.
	inTime := 0
	for try := range 100 {
		s.tables.Reset()
		s.tables.Request(pid, image, []process.Mapping{{Start: 0x1000, Limit: 0x2000, Kind: process.KindAnon}})
		begin := time.Now()
		s.runAgain(t, pid)
		first, _ := s.snapshots(t, 0)
		time.Sleep(after)
		missed := s.runAgain(t, pid)
		second, _ := s.snapshots(t, 0)
		if len(first) == 0 || missed > 0 || time.Since(begin) > limit {
			continue
		}
		if len(second) == 0 {
			t.Fatalf("got no snapshot %v after the request, which was not answered", after)
		}
		inTime++
		// The process may stop in other pages, which the kernel side requests then.
		for time.Since(begin) < limit {
			s.tables.Answered(monotonic.Now())
			time.Sleep(after)
			s.tables.Answered(monotonic.Now())
			s.runAgain(t, pid)
			for _, stack := range s.take(t)[pid] {
				if stack.end == stackend.NoMapping && time.Since(begin) < limit {
					t.Logf("try %d: gave up after the answer", try+1)
					return
				}
			}
		}
	}
	t.Errorf("got only snapshots after the requests were answered, in %d tries that took less than %v", inTime, limit)
}
