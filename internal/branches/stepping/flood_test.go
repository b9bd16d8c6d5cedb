package stepping

import (
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

var flood = flag.Duration("flood", 0, "how long each flood lasts, instead of 1s, or 30s in make test-long")

// floodTime is how long each flood lasts.
func floodTime() time.Duration {
	switch {
	case *flood > 0:
		return *flood
	case testenv.IsLong():
		return 30 * time.Second
	}
	return time.Second
}

// TestFloods disturbs a stepped program as much as possible with signals, threads and
// execve. The program checks itself and must not be harmed. On all kernels of the rig, only the
// first floods take place, in which the trap of a step can be pending when the thread is let go.
func TestFloods(t *testing.T) {
	testenv.EveryKernel(t)
	tests := []struct {
		name, mode string
		// act disturbs the program once, and is called repeatedly.
		act func(t *testing.T, b *board, pid int)
	}{
		{"SIGCONT", "default", continues},
		{"SIGCONT with SIGTRAP blocked", "blocks", continues},
		{"SIGSTOP and SIGCONT", "default", stopsAndContinues},
		{"SIGSTOP and SIGCONT with SIGTRAP blocked", "blocks", stopsAndContinues},
		{"every signal", "handles", everySignal},
		{"every signal and SIGCONT", "handles", func(t *testing.T, b *board, pid int) {
			continues(t, b, pid)
			everySignal(t, b, pid)
		}},
		{"real-time signals", "handles", realTime},
		{"SIGTRAP for another thread", "takes", func(t *testing.T, b *board, pid int) {
			continues(t, b, pid)
			handshake(t, b, pid, unix.SIGTRAP)
		}},
		{"threads and children", "storms", continues},
		{"children traced from their start", "clones", idle},
		{"execve by other threads than the first", "exec", idle},
		{"execve and SIGCONT", "exec", continues},
	}
	if testenv.BriefInVM() {
		tests = tests[:2]
	}
	bin := compile(t, "steadfast")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.mode == "takes" && testenv.KernelBefore(t, 5, 16) {
				testenv.Unsupported(t, "the signal stays with the stepped thread before Linux 5.16")
			}
			b, cmd := steadfast(t, bin, test.mode)
			pid := cmd.Process.Pid
			s := start(t, Options{MaxOverhead: 1000}, pid)
			go follow(t, s, pid)
			// Wait for the first step, which takes long on an emulated machine.
			stepped := func() bool {
				stats, _ := s.Stats()
				return stats.Steps > 0
			}
			acts, end := 0, time.Now().Add(floodTime())
			latest := end.Add(testenv.TimeLimit())
			for now := time.Now(); (now.Before(end) || !stepped() && now.Before(latest)) && !hasEnded(t, pid); now = time.Now() {
				test.act(t, b, pid)
				acts++
			}
			b.check(t, pid)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			stats, refused := s.Stats()
			t.Logf("%d acts, %d turns; %+v %v", acts, b.turns.Load(), stats, refused)
			if stats.Steps == 0 {
				t.Error("got no steps")
			}
			b.check(t, pid)
			if tracer := tracerOf(t, pid); tracer != 0 {
				t.Errorf("the target is still traced by process %d", tracer)
			}
		})
	}
}

func idle(*testing.T, *board, int) { time.Sleep(time.Millisecond) }

// continues sends SIGCONT, which ptrace reports to the tracer. It sometimes pauses to
// allow some steps.
func continues(t *testing.T, _ *board, pid int) {
	signalTo(t, pid, unix.SIGCONT)
	pause := 200 * time.Microsecond
	if rand.N(32) == 0 {
		pause = testenv.Patience(10 * time.Millisecond)
	}
	sleep(rand.N(pause))
}

// stopsAndContinues sends SIGSTOP and SIGCONT, with enough time for a burst to begin.
func stopsAndContinues(t *testing.T, b *board, pid int) {
	sleep(rand.N(testenv.Patience(10 * time.Millisecond)))
	signalTo(t, pid, unix.SIGSTOP)
	if rand.N(2) == 0 {
		sleep(rand.N(500 * time.Microsecond))
	}
	continues(t, b, pid)
}

func everySignal(t *testing.T, b *board, pid int) {
	for sig := unix.SIGHUP; sig <= unix.SIGSYS; sig++ {
		if sig != unix.SIGKILL && sig != unix.SIGSTOP && !hasEnded(t, pid) {
			handshake(t, b, pid, sig)
		}
	}
}

func signalTo(t *testing.T, pid int, sig unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// handshake sends a signal, waits for its handler, and fails if the handler ran more than
// once.
func handshake(t *testing.T, b *board, pid int, sig unix.Signal) {
	t.Helper()
	before := b.heard[sig].Load()
	signalTo(t, pid, sig)
	deadline := time.Now().Add(testenv.TimeLimit())
	for b.heard[sig].Load() == before {
		if hasEnded(t, pid) {
			return // check reports it
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v was lost", sig)
		}
		sleep(20 * time.Microsecond)
	}
	if sig != unix.SIGCONT && b.heard[sig].Load() != before+1 {
		t.Fatalf("got %[2]d runs of the handler of %[1]v, want 1", sig, b.heard[sig].Load()-before)
	}
}

// realTime sends numbered real-time signals to the process and to its thread, and waits
// until all are handled. The handler checks their order.
func realTime(t *testing.T, b *board, pid int) {
	const many = 50
	const queued = -1 // SI_QUEUE
	const sig = 40
	// siginfo_t: int si_signo, si_errno, si_code; pid, uid and value at offset 16.
	info := struct {
		signo, errno, code, _ int32
		pid, uid              int32
		value                 uint64
		_                     [96]byte
	}{signo: sig, code: queued, pid: int32(os.Getpid())}
	want := b.heard[sig].Load() + many
	first := b.next.Load()
	toThread := rand.N(2) == 0
	for i := range uint64(many) {
		info.value = first + i
		var errno unix.Errno
		if toThread {
			_, _, errno = unix.Syscall6(unix.SYS_RT_TGSIGQUEUEINFO, uintptr(pid), uintptr(pid), sig, uintptr(unsafe.Pointer(&info)), 0, 0)
		} else {
			_, _, errno = unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), sig, uintptr(unsafe.Pointer(&info)))
		}
		if errno != 0 {
			t.Fatal(errno)
		}
		if i%8 == 0 {
			continues(t, b, pid)
		}
	}
	runtime.KeepAlive(&info)
	deadline := time.Now().Add(testenv.TimeLimit())
	for b.heard[sig].Load() < want && !hasEnded(t, pid) {
		if time.Now().After(deadline) {
			t.Fatalf("got %d real-time signals too few", want-b.heard[sig].Load())
		}
		sleep(50 * time.Microsecond)
	}
	if got := b.heard[sig].Load(); got > want {
		t.Fatalf("got %d real-time signals too many", got-want)
	}
}
