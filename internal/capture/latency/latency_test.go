package latency

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// start measures the time from fsync to close in this process.
func start(t *testing.T, match Match) *Source {
	return startBetween(t, "syscalls:sys_enter_fsync", "syscalls:sys_enter_close", Options{Match: match})
}

// startBetween measures the time from one event of this process to another. It sets the options that all
// tests share.
func startBetween(t *testing.T, begin, end string, o Options) *Source {
	t.Helper()
	testenv.EveryKernel(t)
	testenv.Root(t)
	what := target.Target{Scope: target.Processes, PIDs: []int{os.Getpid()}}
	r := attach.Resolver(what, attach.Places{MaxProbes: 1})
	defer r.Close()
	resolve := func(name string) *events.Probe {
		event, err := events.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		var query events.Query
		if o.Match == SameField {
			query.Weight = "fd"
		}
		if o.Follow != nil {
			query.Show = []events.ShowField{{Name: "fd"}}
		}
		p, err := r.Resolve(event, query)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	o.Options = probe.Options{MaxDepth: 16, SkipUser: true, SkipKernel: true, Scope: what.Scope, Types: btf.NewCache()}
	o.Begin, o.End, o.PendingEntries = resolve(begin), resolve(end), 16
	s, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(s.Attach(what), source.Start(s.Gate(), s)); err != nil {
		t.Fatal(err)
	}
	return s
}

// measured returns the number of intervals that ended.
func measured(t *testing.T, s *Source) uint64 {
	t.Helper()
	times, err := s.Distribution()
	if err != nil {
		t.Fatal(err)
	}
	return times.Count()
}

// Each list of the slowest intervals has those since the list before, the slowest first, with the fields of their
// first events.
func TestSlowestLists(t *testing.T) {
	s := startBetween(t, "syscalls:sys_enter_fsync", "syscalls:sys_enter_close", Options{Match: SameThread, Follow: &Follow{Rows: MaxRows}})
	if err := s.SetSlow(1, math.MaxUint64); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, files := range [][]int{{100_001, 100_002, 100_003}, {100_004}, {}, {100_005, 100_006}} {
		before := monotonic.Now()
		var want, got []string
		for _, file := range files { // none of them is open
			_ = unix.Fsync(file)
			_ = unix.Close(file)
			want = append(want, strconv.Itoa(file))
		}
		all, err := s.Slowest(MaxRows)
		if err != nil {
			t.Fatal(err)
		}
		for j, row := range all {
			if row.Since < before || row.Since+row.Time > monotonic.Now() || !row.IsSlow() || row.Running+row.Waiting > row.Time || int(row.Pid) != os.Getpid() {
				t.Errorf("list %d: got %+v", i, row)
			}
			if j > 0 && row.Time > all[j-1].Time {
				t.Errorf("list %d: %d ns after %d ns, want the slowest first", i, row.Time, all[j-1].Time)
			}
			for _, f := range row.Fields {
				if f.Key != "fd" {
					t.Errorf("list %d: got field %s", i, f.Key)
				}
				got = append(got, f.Value)
			}
		}
		slices.Sort(got)
		// On busy virtual machines, the kernel does not report each switch.
		excluded, err := s.Excluded()
		if err != nil {
			t.Fatal(err)
		}
		if excluded.Unseen == 0 && !slices.Equal(got, want) {
			t.Errorf("list %d: got the files %v, want %v", i, got, want)
		}
	}
	if all, err := s.Slowest(0); err != nil || len(all) != 0 {
		t.Errorf("got %v, %v, want nothing", all, err)
	}
}

// An interval that has ended, but that the kernel did not delete, does not end again, is not in
// progress, and is not replaced by the next one.
func TestNotDeleted(t *testing.T) {
	s := start(t, SameField)
	key := bpf.LatencyIntervalKey{Of: closed}
	for _, begins := range []bool{false, true} {
		if err := s.Maps[bpf.LatencyMapIntervals].Put(key, Interval{Since: ended}); err != nil {
			t.Fatal(err)
		}
		if all, err := s.InProgress(); err != nil || len(all) != 0 {
			t.Errorf("got the intervals in progress %v, %v, want none", all, err)
		}
		before, want := measured(t, s), uint64(0)
		if begins {
			want = 1
			_ = unix.Fsync(closed)
		}
		_ = unix.Close(closed)
		if got := measured(t, s) - before; got != want {
			t.Errorf("begins %v: got %d intervals, want %d", begins, got, want)
		}
	}
	if n, err := s.Unfinished(); err != nil || n != 0 {
		t.Errorf("got %d unfinished intervals, %v, want none", n, err)
	}
}

// closed is a descriptor that is not open.
const closed = 1 << 30

// An interval that another CPU began after the event does not end: its time would be
// negative.
func TestBegunLater(t *testing.T) {
	s := start(t, SameField)
	for since, want := range map[uint64]uint64{
		monotonic.Now() - 1000:              1,
		monotonic.Now() + 1_000_000_000_000: 0,
	} {
		key := bpf.LatencyIntervalKey{Of: closed}
		if err := s.Maps[bpf.LatencyMapIntervals].Put(key, Interval{Since: since}); err != nil {
			t.Fatal(err)
		}
		before := measured(t, s)
		_ = unix.Close(closed)
		if got := measured(t, s) - before; got != want {
			t.Errorf("since %d: got %d intervals, want %d", since, got, want)
		}
	}
}

// Intervals that never end give way to newer ones, and are counted.
func TestEvicted(t *testing.T) {
	s := start(t, SameField)
	room := int(s.Maps[bpf.LatencyMapIntervals].MaxEntries())
	last := closed + 3*room
	for fd := closed; fd <= last; fd++ {
		_ = unix.Fsync(fd)
	}
	_ = unix.Close(last)
	if got := measured(t, s); got != 1 {
		t.Errorf("got %d intervals, want 1", got)
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats()
	unfinished, unfinishedErr := s.Unfinished()
	if err := errors.Join(err, unfinishedErr); err != nil {
		t.Fatal(err)
	}
	evicted := stats.Losses[profile.LossUnfollowed]
	if got := unfinished + evicted; got != uint64(3*room) {
		t.Errorf("%d intervals did not end, want %d", got, 3*room)
	}
	if evicted < uint64(2*room) {
		t.Errorf("%d intervals gave way, want at least %d", evicted, 2*room)
	}
}

// Waits that never end give way to newer ones with their wakers.
func TestEvictedWakers(t *testing.T) {
	s := startBetween(t, "syscalls:sys_enter_ppoll", "syscalls:sys_exit_ppoll", Options{Match: SameThread, Wakers: true})
	wakers := s.Maps[bpf.LatencyMapWakers]
	for task := range 3 * uint64(wakers.MaxEntries()) {
		if err := wakers.Put(task+1, bpf.LatencyWaker{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Maps[bpf.LatencyMapIntervals].Put(bpf.LatencyIntervalKey{Of: task + 1}, Interval{}); err != nil {
			t.Fatal(err)
		}
	}
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	tid, done := make(chan int, 1), make(chan error)
	go func() {
		runtime.LockOSThread()
		tid <- unix.Gettid()
		_, err := unix.Ppoll([]unix.PollFd{{Fd: int32(pipe[0]), Events: unix.POLLIN}}, nil, nil)
		done <- err
	}()
	call := fmt.Sprintf("/proc/self/task/%d/syscall", <-tid)
	testenv.Await(t, func() bool {
		text, err := os.ReadFile(call)
		return err == nil && strings.HasPrefix(string(text), fmt.Sprintf("%d ", unix.SYS_PPOLL))
	}, func() string { return "the thread does not wait" })
	if _, err := unix.Write(pipe[1], []byte{0}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := source.Stop(s.Gate(), s); err != nil {
		t.Fatal(err)
	}
	if err := s.Counts().Finish(); err != nil {
		t.Fatal(err)
	}
	waits := 0
	for key, values := range s.Counts().Total() {
		if waits += int(values[Intervals]); key.Waker == 0 {
			t.Error("a wait has no waker")
		}
	}
	if waits != 1 {
		t.Errorf("got %d waits, want 1", waits)
	}
}

// When a thread exits in an interval, no other thread inherits the interval, even if it gets
// the same memory in the kernel. A thread that executes a program continues with the ID of
// its process.
func TestThreadExits(t *testing.T) {
	s := start(t, SameThread)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, test := range map[string]struct {
		change     func(*Interval)
		measured   uint64
		unfinished uint64
	}{
		"same thread":        {func(*Interval) {}, 1, 0},
		"executed a program": {func(i *Interval) { i.Pid, i.Tid = i.Tid, 1<<30 }, 1, 0},
		"other thread":       {func(i *Interval) { i.Pid, i.Tid = 1<<30+1, 1<<30 }, 0, 1},
	} {
		measuredBefore := measured(t, s)
		unfinishedBefore, err := s.Unfinished()
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Fsync(closed)
		var key bpf.LatencyIntervalKey
		var value Interval
		intervals := s.Maps[bpf.LatencyMapIntervals]
		if all := intervals.Iterate(); !all.Next(&key, &value) {
			t.Fatalf("%s: no interval in progress: %v", name, all.Err())
		}
		test.change(&value)
		if err := intervals.Put(key, value); err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(closed)
		if got := measured(t, s) - measuredBefore; got != test.measured {
			t.Errorf("%s: got %d intervals, want %d", name, got, test.measured)
		}
		unfinished, err := s.Unfinished()
		if err != nil {
			t.Fatal(err)
		}
		if got := unfinished - unfinishedBefore; got != test.unfinished {
			t.Errorf("%s: got %d unfinished, want %d", name, got, test.unfinished)
		}
	}
}
