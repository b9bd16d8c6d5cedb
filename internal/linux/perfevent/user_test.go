package perfevent

import (
	"bufio"
	"encoding/binary"
	"errors"
	"math/bits"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/testenv"
)

// userAttr samples a user's own code with all that a profile without privileges needs.
var userAttr = Attr{
	Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Period: 10e6, ExcludeKernel: true,
	SampleType: unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_PERIOD | unix.PERF_SAMPLE_CALLCHAIN,
	UserRegs:   AllUserRegs, UserStack: 4096, ExcludeKernelChain: true,
	Switches: true, Mmap2: true, Comm: true, CommExec: true, Task: true,
	SampleIDAll: true, MonotonicClock: true, Disabled: true,
}

// ringPages has room for the records of a test with any size of pages, and is within the limit of a user.
const ringPages = 64 * 4096

// openUser opens an event with a ring, as a user.
func openUser(t *testing.T, a Attr, pid, cpu int) (*Event, *Ring) {
	t.Helper()
	e, err := Open(a, pid, cpu)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	ring, err := e.Map(ringPages / os.Getpagesize())
	if err != nil {
		t.Fatal(err)
	}
	return e, ring
}

// keep returns a record that does not refer to a ring.
func keep(r Record) Record {
	if s, ok := r.(Sample); ok {
		s.Chain, s.User.Regs, s.User.Stack = slices.Clone(s.Chain), slices.Clone(s.User.Regs), slices.Clone(s.User.Stack)
		return s
	}
	return r
}

// words returns the 64-bit words in b.
func words(b []byte) (list []uint64) {
	for ; len(b) >= 8; b = b[8:] {
		list = append(list, binary.NativeEndian.Uint64(b))
	}
	return list
}

// Bits of a user register's mask: the frame pointer, the stack pointer and the program counter.
var fpBit, spBit, pcBit = map[string]int{"amd64": 6, "arm64": 29}[runtime.GOARCH],
	map[string]int{"amd64": 7, "arm64": 31}[runtime.GOARCH], map[string]int{"amd64": 8, "arm64": 32}[runtime.GOARCH]

// register returns the sampled value of a register.
func (s Sample) register(bit int) uint64 {
	return words(s.User.Regs)[bits.OnesCount64(s.User.Mask&(1<<bit-1))]
}

//go:noinline
func spin(until time.Duration) (n int) {
	for ; threadTime() < until; n++ {
		for i := range 100_000 {
			n += i * i % 7
		}
	}
	return n
}

// threadTime returns the CPU time of the thread.
func threadTime() time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
		panic(err)
	}
	return time.Duration(at.Nano())
}

// A user without privileges gets samples of a thread of their own, and its changes in the order of time.
func TestSampleOwnThread(t *testing.T) {
	testenv.UserPerfEvents(t)
	testenv.AsNobody(t, func(t *testing.T) {
		runtime.LockOSThread() // for good: it gets another name
		pid, tid := os.Getpid(), unix.Gettid()
		e, ring := openUser(t, userAttr, tid, -1)
		began := monotonic.Now()
		if err := e.Enable(); err != nil {
			t.Fatal(err)
		}
		spin(threadTime() + 200*time.Millisecond)
		code, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Munmap(code) }()
		name := []byte("sampled\x00")
		if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0); err != nil {
			t.Fatal(err)
		}
		unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&unix.Timespec{Nsec: 1e6})), 0, 0)
		if err := e.Disable(); err != nil {
			t.Fatal(err)
		}
		ended := monotonic.Now()
		var all []Record
		lost, err := ring.Read(func(r Record) { all = append(all, keep(r)) })
		if err != nil || lost > 0 {
			t.Fatalf("got %d lost records, %v; want none", lost, err)
		}
		total, err := e.Read()
		if err != nil {
			t.Fatal(err)
		}
		var spinning, mapped, named, slept int
		var periods, last uint64
		for _, r := range all {
			if at := r.When(); at < max(last, began) || at > ended {
				t.Errorf("got %+v, want records in the order of time, from %d to %d", r, began, ended)
			}
			last = r.When()
			switch r := r.(type) {
			case Sample:
				periods += r.Period
				if checkSample(t, r, pid, tid) {
					spinning++
				}
			case Mmap2:
				if r.Addr == uint64(uintptr(unsafe.Pointer(&code[0]))) && r.PID == pid && strings.HasPrefix(r.Filename, "//anon") {
					mapped++
				}
			case Comm:
				if r == (Comm{r.Stamp, pid, tid, false, "sampled"}) {
					named++
				}
			case Switch:
				if r.PID != pid || r.TID != tid {
					t.Errorf("got %+v of another thread than %d", r, tid)
				}
				if r.Out && !r.Preempted {
					slept++
				}
			}
		}
		if spinning == 0 || mapped != 1 || named != 1 || slept == 0 {
			t.Errorf("got %d samples of the function, %d mappings, %d names and %d waits; want some, 1, 1 and some", spinning, mapped, named, slept)
		}
		// The counter has the time in the kernel, too.
		if periods > total.Count+userAttr.Period {
			t.Errorf("got samples of %d ns of %d", periods, total.Count)
		}
	})
}

// checkSample checks a sample of this process: registers, copy and call chain agree. It reports whether it is of spin.
func checkSample(t *testing.T, s Sample, pid, tid int) (spinning bool) {
	t.Helper()
	if s.PID != pid || s.TID != tid || s.Period != userAttr.Period || s.User.ABI != ABI64 || s.User.Mask != AllUserRegs {
		t.Fatalf("got %+v, want a sample of thread %d of process %d", s, tid, pid)
	}
	if pc := s.register(pcBit); pc != s.IP {
		t.Errorf("got the program counter %#x, the address %#x", pc, s.IP)
	}
	contextUser := uint64(1<<64 - 512)
	chain := words(s.Chain)
	if len(chain) < 2 || chain[0] != contextUser || chain[1] != s.IP {
		t.Fatalf("got the call chain %#x, want one of user space from %#x on", chain, s.IP)
	}
	// The first frame pointer leads to the next address of the chain, if it is in the copy.
	if at := s.register(fpBit) - s.register(spBit) + 8; len(chain) > 2 && at+8 <= uint64(len(s.User.Stack)) {
		if ra := binary.NativeEndian.Uint64(s.User.Stack[at:]); ra != chain[2] {
			t.Errorf("got the return address %#x in the copy, %#x in the call chain", ra, chain[2])
		}
	}
	if fn := runtime.FuncForPC(uintptr(s.IP)); fn == nil || !strings.HasSuffix(fn.Name(), ".spin") {
		return false
	}
	if !s.User.Full {
		t.Errorf("got %d bytes of the stack of a goroutine, want %d", len(s.User.Stack), userAttr.UserStack)
	}
	return true
}

// Events on each CPU are inherited, and begin when a command is executed.
func TestSampleOwnCommand(t *testing.T) {
	testenv.UserPerfEvents(t)
	testenv.AsNobody(t, func(t *testing.T) {
		cpus, err := OnlineCPUs()
		if err != nil {
			t.Fatal(err)
		}
		const work = `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`
		cmd := exec.Command("/bin/sh", "-c", `read line; exec /bin/sh -c '(`+work+`) & wait'`)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		defer func() { _ = cmd.Process.Kill() }()
		a := userAttr
		a.Inherit, a.EnableOnExec, a.Period, a.UserStack = true, true, 1e7, 512 // so rarely that the rings hold all samples
		var events []*Event
		var rings []*Ring
		for _, cpu := range cpus {
			e, ring := openUser(t, a, pid, cpu)
			events, rings = append(events, e), append(rings, ring)
		}
		w := bufio.NewWriter(in)
		if _, err := w.WriteString("go\n"); err != nil || errors.Join(w.Flush(), in.Close()) != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		var samples, execs, forks, exits, mapped int
		var periods, total uint64
		child := 0
		var all []Record
		for i, ring := range rings {
			lost, err := ring.Read(func(r Record) { all = append(all, keep(r)) })
			if err != nil || lost > 0 {
				t.Errorf("CPU %d: got %d lost records, %v; want none", cpus[i], lost, err)
			}
			counted, err := events[i].Read()
			if err != nil {
				t.Fatal(err)
			}
			total += counted.Count
		}
		slices.SortStableFunc(all, func(a, b Record) int { return int(int64(a.When() - b.When())) })
		for _, r := range all {
			switch r := r.(type) {
			case Comm:
				if r.Exec && r.PID == pid {
					execs++
				}
			case Fork:
				if r.PPID == pid && r.PID != pid {
					forks++
					child = r.PID
				}
			case Exit:
				exits++
			case Mmap2:
				if r.PID == pid && strings.HasPrefix(r.Filename, "/") && r.Prot&unix.PROT_EXEC != 0 {
					mapped++
				}
			case Sample:
				periods += r.Period
				if r.PID == child && child != 0 {
					samples++
				}
			}
		}
		if samples == 0 || execs != 1 || forks != 1 || exits != 2 || mapped == 0 {
			t.Errorf("got %d samples of the child, %d execs, %d forks, %d exits and %d mappings of files; want some, 1, 1, 2 and some",
				samples, execs, forks, exits, mapped)
		}
		if periods > total+uint64(len(cpus))*a.Period {
			t.Errorf("got samples of %d ns of %d", periods, total)
		}
	})
}

// The samples of two threads on a CPU reach one ring.
func TestSendTo(t *testing.T) {
	testenv.UserPerfEvents(t)
	testenv.AsNobody(t, func(t *testing.T) {
		cpus, err := OnlineCPUs()
		if err != nil {
			t.Fatal(err)
		}
		var only unix.CPUSet
		only.Set(cpus[0])
		runtime.LockOSThread() // for good: both threads stay on the CPU
		if err := unix.SchedSetaffinity(0, &only); err != nil {
			t.Fatal(err)
		}
		tids, spinning, done := make(chan int), make(chan bool), make(chan bool)
		go func() {
			runtime.LockOSThread()
			_ = unix.SchedSetaffinity(0, &only)
			tids <- unix.Gettid()
			<-spinning
			spin(threadTime() + 100*time.Millisecond)
			close(done)
		}()
		a := userAttr
		a.UserStack = 256
		own, other := unix.Gettid(), <-tids
		first, ring := openUser(t, a, own, cpus[0])
		second, err := Open(a, other, cpus[0])
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		if err := errors.Join(second.SendTo(first), first.Enable(), second.Enable()); err != nil {
			t.Fatal(err)
		}
		close(spinning)
		spin(threadTime() + 100*time.Millisecond)
		<-done
		samples := map[int]int{}
		lost, err := ring.Read(func(r Record) {
			if s, ok := r.(Sample); ok {
				checkSample(t, s, os.Getpid(), s.TID)
				samples[s.TID]++
			}
		})
		if err != nil || lost > 0 || samples[own] == 0 || samples[other] == 0 || len(samples) != 2 {
			t.Errorf("got samples of %v, %d lost, %v; want some of %d and %d", samples, lost, err, own, other)
		}
	})
}

// Children do not inherit an event that only threads inherit.
func TestInheritThread(t *testing.T) {
	testenv.UserPerfEvents(t)
	if testenv.KernelBefore(t, 5, 13) {
		testenv.Unsupported(t, "needs inherit_thread of Linux 5.13")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var events [2]*Event
	for i := range events {
		a := Attr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, ExcludeKernel: true, Inherit: true, InheritThread: i == 1}
		e, err := Open(a, unix.Gettid(), -1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		events[i] = e
	}
	child := exec.Command("/bin/sh", "-c", `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`)
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	var counts [2]uint64
	for i, e := range events {
		r, err := e.Read()
		if err != nil {
			t.Fatal(err)
		}
		counts[i] = r.Count
	}
	if used := uint64(child.ProcessState.UserTime()); counts[0] < counts[1]+used/2 {
		t.Errorf("the child used %d ns; got %d ns with it and %d ns without", used, counts[0], counts[1])
	}
}
