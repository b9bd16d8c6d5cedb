package offcpu

import (
	"cmp"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// interval is an interval of CLOCK_MONOTONIC in ns.
type interval struct{ begin, end uint64 }

// Waits are cut while threads return from them. The parts never overlap, and each
// thread's number of switches matches the kernel's, except for reported losses.
func TestCutWhileThreadsReturn(t *testing.T) {
	testenv.Root(t)
	const (
		sleepers = 4
		cuts     = 100
		nap      = 50_000 // ns
		backlog  = 50_000 // unread waits; the ring has room for more than three times as many
		pause    = 200 * nap
	)
	s, err := Load(probe.Options{
		MaxDepth: 1, SkipUser: true, Timeline: true, Scope: target.Processes,
		RingSize: 16 << 20, CountEntries: 1,
	}, Config{States: AllStates, PendingEntries: DefaultPendingEntries})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Attach(target.Target{Scope: target.Processes, PIDs: []int{os.Getpid()}}); err != nil {
		t.Fatal(err)
	}

	if err := source.Start(s.Gate(), s); err != nil {
		t.Fatal(err)
	}
	var times [sleepers]interval // while the switches are counted
	var switches [sleepers]int
	var tids [sleepers]uint32
	var stop atomic.Bool
	var unread atomic.Int64
	var started, running sync.WaitGroup
	started.Add(sleepers)
	for i := range sleepers {
		running.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends here
			tids[i] = uint32(unix.Gettid())
			var before int
			times[i].begin, before = switchesUntil(t)
			started.Done()
			for !stop.Load() {
				long := int64(nap)
				if unread.Add(1) > backlog {
					long = pause // the reader waits for a CPU
				}
				_ = unix.Nanosleep(&unix.Timespec{Nsec: long}, nil)
			}
			times[i].end, switches[i] = switchesUntil(t)
			switches[i] -= before
		})
	}
	intervals, parts := map[uint32][]interval{}, 0
	read := func() error {
		return s.Ring().ReadTo(s.Ring().Position(), func(record []byte) error {
			kind, err := stacks.RecordType(record)
			if err != nil || kind != bpf.RecordTimeline {
				return err
			}
			e, err := ringbuf.As[Event](record, EventSize)
			if err != nil {
				return err
			}
			unread.Add(-1)
			intervals[e.Tid] = append(intervals[e.Tid], interval{e.Time, e.Time + e.Duration})
			return nil
		})
	}
	started.Wait()
	at := map[uint64]bool{}
	for range cuts {
		err := s.BeginCut()
		now := monotonic.Now()
		at[now] = true
		if err := errors.Join(err, s.Cut(now), read()); err != nil {
			t.Error(err)
			break
		}
	}
	stop.Store(true)
	running.Wait()
	_, err = source.Stop(s.Gate(), s)
	if err := errors.Join(err, read()); err != nil {
		t.Fatal(err)
	}

	stats, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if l := stats.Losses; l[profile.LossUnsent] != 0 || l[profile.LossUnfollowed] != 0 {
		t.Fatalf("%d events lost, %d threads not followed: the ring or the table is too small", l[profile.LossUnsent], l[profile.LossUnfollowed])
	}
	missed := int(stats.Losses[profile.LossMissed] + stats.Losses[profile.LossSkipped])
	for i, tid := range tids {
		all := intervals[tid]
		slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.begin, b.begin) })
		left, orphans := 0, 0
		for j, now := range all {
			var before interval
			if j > 0 {
				before = all[j-1]
			}
			switch {
			case now.begin < before.end:
				t.Errorf("thread %d: intervals overlap by %d ns, their lengths are %d and %d ns", tid, before.end-now.begin, before.end-before.begin, now.end-now.begin)
			case now.begin == before.end:
				parts++
			case times[i].begin <= now.begin && now.begin < times[i].end:
				left++
				if at[now.begin] {
					orphans++ // the part before the cut is missing
				}
			}
		}
		if left > switches[i] || left+missed < switches[i] {
			t.Errorf("thread %d: got %d switches, want the kernel's %d except for %d missed", tid, left, switches[i], missed)
		}
		// A thread may leave its CPU in the very nanosecond of a cut.
		if orphans > missed+2 {
			t.Errorf("thread %d: %d intervals begin at a cut and lack the part before it", tid, orphans)
		}
	}
	if parts == 0 {
		t.Error("got no wait that was cut")
	}
	t.Logf("%d cuts; %d switches missed", parts, missed)
}

// switchesUntil returns the current time and how often the calling thread has left its CPU until
// then.
func switchesUntil(t *testing.T) (now uint64, n int) {
	count := func() int {
		var used unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
			t.Error(err)
		}
		return int(used.Nvcsw + used.Nivcsw)
	}
	for {
		n = count()
		now = monotonic.Now()
		if count() == n { // not between the two
			return now, n
		}
	}
}
