package offcpu

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// With a reduction of n, one in n short waits is measured and counts n times, and all waits that follow a
// long one are measured and count once.
func TestReduce(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	const (
		reduction = 8
		nap       = 50 * time.Microsecond
		sleep     = 110 * time.Millisecond
		tries     = 20
	)
	t.Run("short", func(t *testing.T) {
		s := measureSleeper(t, reduction, 8000, nap)
		low, high := float64(s.inside)/reduction, float64(s.around)/reduction
		if n := float64(s.waits); n < low-6*math.Sqrt(low) || n > high+6*math.Sqrt(high) {
			t.Errorf("got %d waits of %d to %d, want one in %d", s.waits, s.inside, s.around, reduction)
		}
		// The timer of a sleep starts shortly before the wait.
		if want := time.Duration(s.sleeps) * reduction * nap / 2; s.time < want {
			t.Errorf("got %s for %d sleeps of %s, want each to count %d times", s.time, s.sleeps, nap, reduction)
		}
	})
	t.Run("long", func(t *testing.T) {
		const sleeps = 10
		var missed slept
		for range tries {
			s := measureSleeper(t, reduction, sleeps, sleep)
			if s.inside != sleeps {
				continue // another thread took its CPU, so it had short waits, too
			}
			// Short waits come before the first sleep, which may therefore be left out or count several
			// times, and after the last one.
			if s.time > reduction/2*s.elapsed {
				t.Fatalf("got %d waits of %s, want each of %d to count once, in %s", s.waits, s.time, sleeps-1, s.elapsed)
			}
			if s.waits >= sleeps-1 && s.time >= (sleeps-1)*sleep {
				return
			}
			// The kernel drops events while another program attaches to the tracepoint or detaches. A
			// reduction that also applied to long waits would hardly ever measure all of them.
			missed = s
		}
		t.Errorf("in each of %d tries, another thread took the CPU, or waits are missing, last of %+v", tries, missed)
	})
	t.Run("none", func(t *testing.T) {
		if s := measureSleeper(t, 1, 100, nap); s.waits+s.missed < s.inside || s.waits > s.around+1 {
			t.Errorf("got %d waits and %d missed, want %d to %d", s.waits, s.missed, s.inside, s.around)
		}
	})
}

// Even with a reduction, all blocked threads are measured from the end of the window on, each with its own
// time.
func TestReduceBlocked(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	const threads = 16
	s := loadReduced(t, 8)
	if err := source.Start(s.Gate(), s); err != nil {
		t.Fatal(err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	tids := make(chan int, threads)
	var ended sync.WaitGroup
	for range threads {
		ended.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends here
			for range 20 {
				_ = unix.Nanosleep(&unix.Timespec{Nsec: 50_000}, nil)
			}
			tids <- unix.Gettid()
			_, _ = unix.Read(pipe[0], make([]byte, 1)) // until the pipe is closed
		})
	}
	blocked := map[uint32]bool{}
	for range threads {
		tid := testenv.Receive(t, tids, "a thread did not start")
		testenv.Await(t, func() bool {
			call, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", tid))
			return err == nil && strings.HasPrefix(string(call), fmt.Sprintf("%d 0x%x ", unix.SYS_READ, pipe[0]))
		}, func() string { return "a thread does not block" })
		blocked[uint32(tid)] = true
	}
	if err := s.BeginCut(); err != nil {
		t.Fatal(err)
	}
	begin := monotonic.Now()
	if err := errors.Join(s.Cut(begin), s.Counts().Flip()); err != nil {
		t.Fatal(err)
	}
	s.Counts().Take()
	time.Sleep(50 * time.Millisecond)
	least := monotonic.Now()
	_, err := source.Stop(s.Gate(), s)
	if err := errors.Join(err, s.Counts().Finish()); err != nil {
		t.Fatal(err)
	}
	most := monotonic.Now()
	for k, v := range s.Counts().Total() {
		if blocked[k.TID] {
			if v[OffCPU] < least-begin || v[OffCPU] > most-begin {
				t.Errorf("got %d ns, want from %d to %d", v[OffCPU], least-begin, most-begin)
			}
			delete(blocked, k.TID)
		}
	}
	if len(blocked) > 0 {
		t.Errorf("%d of %d blocked threads were not measured", len(blocked), threads)
	}
	if err := errors.Join(unix.Close(pipe[1]), unix.Close(pipe[0])); err != nil {
		t.Error(err)
	}
	ended.Wait()
}

// loadReduced loads and attaches a source for this process that measures one in reduction waits.
func loadReduced(t *testing.T, reduction uint64) *Source {
	t.Helper()
	s, err := Load(probe.Options{
		MaxDepth: 1, SkipUser: true, Scope: target.Processes, RingSize: 1 << 20, CountEntries: 1 << 10, ByThread: true,
	}, Config{States: AllStates, PendingEntries: DefaultPendingEntries})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Attach(target.Target{Scope: target.Processes, PIDs: []int{os.Getpid()}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Reduce(reduction); err != nil {
		t.Fatal(err)
	}
	return s
}

// slept is what a thread that only sleeps did, and what was measured.
type slept struct {
	inside, around int // switches from its CPU while it slept, and from before the measurement to after it
	elapsed        time.Duration
	waits, sleeps  int // measured; waits include preemptions
	time           time.Duration
	missed         int
}

// measureSleeper measures the waits of a thread that sleeps n times.
func measureSleeper(t *testing.T, reduction uint64, n int, each time.Duration) (result slept) {
	s := loadReduced(t, reduction)
	const starting, sleeping, done, ended = 1, 2, 3, 4
	var state, switches atomic.Int64
	var tid uint32
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		runtime.LockOSThread() // never unlocked: the thread ends here
		tid = uint32(unix.Gettid())
		count := func() int {
			_, n := switchesUntil(t)
			switches.Store(int64(n))
			return n
		}
		await := func(want int64) {
			for state.Load() != want {
				count()
			}
		}
		count()
		state.Store(starting)
		await(sleeping)
		before, began := count(), monotonic.Now()
		for range n {
			_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(each)}, nil)
		}
		result.elapsed = time.Duration(monotonic.Now() - began)
		result.inside = count() - before
		state.Store(done)
		await(ended)
		count()
	}()
	reached := func(want int64) func() bool { return func() bool { return state.Load() == want } }
	testenv.Await(t, reached(starting), func() string { return "the thread did not start" })
	before := switches.Load()
	if err := source.Start(s.Gate(), s); err != nil {
		t.Fatal(err)
	}
	state.Store(sleeping)
	testenv.Await(t, reached(done), func() string { return "the thread sleeps for too long" })
	if _, err := source.Stop(s.Gate(), s); err != nil {
		t.Fatal(err)
	}
	state.Store(ended)
	<-exited
	result.around = int(switches.Load() - before)
	if err := s.Counts().Finish(); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	result.missed = int(stats.Losses[profile.LossMissed] + stats.Losses[profile.LossSkipped])
	for k, v := range s.Counts().Total() {
		if k.TID != tid {
			continue
		}
		result.waits += int(v[Waits])
		result.time += time.Duration(v[OffCPU])
		if k.Detail == Slept {
			result.sleeps += int(v[Waits])
		}
	}
	return result
}
