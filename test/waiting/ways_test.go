package waiting

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// A way is a way of waiting in the kernel.
type way struct {
	// name is the thread's name, and fulgur's reason.
	name string
	// prepare returns a function that waits once, and returns the duration in ns. The
	// waiting thread calls it.
	prepare func() (wait func() int64, err error)
}

// wayTime is the length of a wait, wayRounds the number of waits in each way.
const (
	wayTime   = 40 * time.Millisecond
	wayRounds = 3
)

var ways = []way{
	{"sleep", func() (func() int64, error) {
		return func() int64 { return raw(unix.SYS_NANOSLEEP, pointer(duration())) }, nil
	}},
	{"futex", func() (func() int64, error) {
		word := new(uint32)
		return func() int64 {
			return raw(unix.SYS_FUTEX, pointer(word), 0 /* FUTEX_WAIT */, 0, pointer(duration()))
		}, nil
	}},
	{"epoll", func() (func() int64, error) {
		fd, err := unix.EpollCreate1(0)
		return func() int64 {
			var event unix.EpollEvent
			return raw(unix.SYS_EPOLL_PWAIT, uintptr(fd), pointer(&event), 1, uintptr(wayTime.Milliseconds()))
		}, err
	}},
	{"poll", func() (func() int64, error) {
		return func() int64 { return raw(unix.SYS_PPOLL, 0, 0, pointer(duration())) }, nil
	}},
	{"select", func() (func() int64, error) {
		return func() int64 { return raw(unix.SYS_PSELECT6, 0, 0, 0, 0, pointer(duration())) }, nil
	}},
	{"signal", func() (func() int64, error) {
		set := uint64(1) << (unix.SIGUSR2 - 1)
		return func() int64 { return raw(unix.SYS_RT_SIGTIMEDWAIT, pointer(&set), 0, pointer(duration()), 8) }, nil
	}},
	{"pipe", func() (func() int64, error) {
		var p [2]int
		err := unix.Pipe(p[:])
		return func() int64 {
			time.AfterFunc(wayTime, func() { _, _ = unix.Write(p[1], []byte{0}) })
			return readByte(p[0])
		}, err
	}},
	{"socket", func() (func() int64, error) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		return func() int64 { return readByte(pair[0]) }, errors.Join(err, setTimeout(pair[0]))
	}},
	{"accept", func() (func() int64, error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		return func() int64 { return raw(unix.SYS_ACCEPT4, uintptr(fd)) }, errors.Join(err, unix.Listen(fd, 1), setTimeout(fd))
	}},
	{"event file", func() (func() int64, error) {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, 0)
		return func() int64 {
			_ = unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: *duration()}, nil)
			var expired uint64
			return raw(unix.SYS_READ, uintptr(fd), pointer(&expired), 8)
		}, err
	}},
	{"file lock", func() (func() int64, error) {
		name := filepath.Join(os.Getenv("WAITING_DIR"), "lock")
		holder, err := os.Create(name)
		if err != nil {
			return nil, err
		}
		other, err := os.Open(name)
		return func() int64 {
			_ = unix.Flock(int(holder.Fd()), unix.LOCK_EX)
			time.AfterFunc(wayTime, func() { _ = unix.Flock(int(holder.Fd()), unix.LOCK_UN) })
			waited := raw(unix.SYS_FLOCK, other.Fd(), unix.LOCK_EX)
			_ = unix.Flock(int(other.Fd()), unix.LOCK_UN)
			return waited
		}, err
	}},
	{"wait for child", func() (func() int64, error) {
		return func() int64 {
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), "WAITING_WORKLOAD=nap")
			if child.Start() != nil {
				return 0
			}
			waited := raw(unix.SYS_WAITID, unix.P_PID, uintptr(child.Process.Pid), 0, unix.WEXITED|unix.WNOWAIT)
			_ = child.Wait()
			return waited
		}, nil
	}},
	{"io_uring", ioUring},
}

// waitInAllWays waits in each way, in a thread with the way's name.
func waitInAllWays(t *truth) error {
	t.Ways = map[string]int64{}
	for _, w := range ways {
		var failed error
		if err := thread(w.name, func() {
			wait, err := w.prepare()
			if err != nil {
				failed = fmt.Errorf("%s: %w", w.name, err)
				return
			}
			for range wayRounds {
				t.Ways[w.name] += wait()
			}
		}); err != nil {
			return err
		}
		if errors.Is(failed, unix.ENOSYS) || errors.Is(failed, unix.EPERM) {
			continue // this kernel does not have it, or does not allow it
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

// duration returns a new copy of wayTime, because calls may change it.
func duration() *unix.Timespec {
	ts := unix.NsecToTimespec(int64(wayTime))
	return &ts
}

// pointer returns the address of memory that does not move: Go moves only stacks, and the
// arguments are not on a stack.
func pointer[T any](p *T) uintptr {
	kept = append(kept, p)
	return uintptr(unsafe.Pointer(p))
}

// kept holds memory that the kernel uses.
var kept []any

func readByte(fd int) int64 { return raw(unix.SYS_READ, uintptr(fd), pointer(new(byte)), 1) }

// setTimeout limits the time that a socket waits.
func setTimeout(fd int) error {
	tv := unix.NsecToTimeval(int64(wayTime))
	return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
}

// ioUring waits for a timeout that it submits to a ring: include/uapi/linux/io_uring.h.
func ioUring() (func() int64, error) {
	const (
		offSQRing, offSQEs = 0, 0x10000000
		opTimeout          = 11
		enterGetEvents     = 1
	)
	var params struct {
		sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
		_                                                                      [3]uint32
		sq                                                                     struct {
			head, tail, ringMask, ringEntries, flags, dropped, array, _ uint32
			_                                                           uint64
		}
		cq struct {
			head, tail, ringMask, ringEntries, overflow, cqes, flags, _ uint32
			_                                                           uint64
		}
	}
	ring, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		return nil, errno
	}
	sq, err := unix.Mmap(int(ring), offSQRing, int(params.sq.array+4*params.sqEntries), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	entries, err := unix.Mmap(int(ring), offSQEs, 64, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	entry := (*struct {
		opcode, flags uint8
		priority      uint16
		fd            int32
		off, addr     uint64
		len           uint32
	})(unsafe.Pointer(&entries[0]))
	return func() int64 {
		entry.opcode, entry.fd, entry.len, entry.addr = opTimeout, -1, 1, uint64(pointer(duration()))
		tail := (*uint32)(unsafe.Pointer(&sq[params.sq.tail]))
		*tail++ // the system call orders it
		waited := raw(unix.SYS_IO_URING_ENTER, ring, 1, 1, enterGetEvents)
		head := (*uint32)(unsafe.Pointer(&sq[params.cq.head]))
		*head++
		return waited
	}, nil
}

// Reasons of waits are named, with the duration of their calls.
func TestWays(t *testing.T) {
	m := measure(t, "ways", "offcpu")
	for _, w := range ways {
		waited, had := m.truth.Ways[w.name]
		if !had {
			t.Logf("no %s here", w.name)
			continue
		}
		m.check(t, "off-cpu", w.name, waited, "fulgur/test/waiting.raw", "["+w.name+"]")
		// During a preemption, the awaited event may already happen.
		got, preempted := m.sum(t, "waits", w.name, "fulgur/test/waiting.raw", "["+w.name+"]"), m.preempted(t, "waits", w.name)
		if got > wayRounds || got+preempted+m.missed() < wayRounds {
			t.Errorf("got %d waits in %s, want %d; %d were preempted\n%s", got, w.name, wayRounds, preempted, m.stderr)
		}
	}
	if t.Failed() {
		var stacks strings.Builder
		for _, s := range m.profile.Sample {
			fmt.Fprintln(&stacks, s.Label["comm"], s.Value, kernelFunctions(s))
		}
		t.Log(stacks.String())
	}
}

// fulgur sees each of many children that only sleep, with its time, or reports missed
// waits.
func TestForkStorm(t *testing.T) {
	testenv.OneKernel(t)
	const child = "fulgur/test/waiting.child"
	m := measure(t, "storm", "offcpu", "--per-thread")
	seen := map[int64]bool{}
	for _, s := range m.profile.Sample {
		if has(s, child) {
			seen[s.NumLabel["tid"][0]] = true
		}
	}
	if missing := m.truth.Times - int64(len(seen)); missing < 0 || missing > 0 && !strings.Contains(m.stderr, " missed ") {
		t.Errorf("got %d children, want %d\n%s", len(seen), m.truth.Times, m.stderr)
	}
	m.check(t, "off-cpu", "storm", m.truth.Slept, child, "[sleep]")
}

// storm forks children as fast as possible. Each sleeps and exits.
func storm(t *truth) error {
	const children = 300
	memory, err := unix.Mmap(-1, 0, 8*children, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	slept := unsafe.Slice((*int64)(unsafe.Pointer(&memory[0])), children)
	var errno unix.Errno
	if err := thread("storm", func() {
		for i := range slept {
			if errno = fork(&slept[i]); errno != 0 {
				return
			}
			t.Times++
		}
		for range slept {
			var used unix.Rusage
			_, _ = unix.Wait4(-1, nil, 0, &used)
			onCPU.add("storm", used.Utime.Nano()+used.Stime.Nano())
		}
	}); err != nil {
		return err
	}
	for _, s := range slept {
		t.Slept += s
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// fork starts a child. The child has one thread, but Go's runtime needs more, so the
// child must not call the runtime.
//
//go:norace
//go:nosplit
//go:noinline
func fork(slept *int64) unix.Errno {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		child(slept)
	}
	return errno
}

// child sleeps, reports for how long, and exits.
//
//go:norace
//go:nosplit
//go:noinline
func child(slept *int64) {
	nap := unix.Timespec{Nsec: int64(napTime)}
	begin := clock(unix.CLOCK_MONOTONIC)
	unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&nap)), 0, 0)
	*slept = clock(unix.CLOCK_MONOTONIC) - begin
	unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
}
