package looks

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// await looks at a thread until a look succeeds.
func await(t *testing.T, pid, tid int) Look {
	t.Helper()
	var l Looker
	var look Look
	var err error
	testenv.Await(t, func() bool {
		look, err = l.Look(pid, tid)
		return err == nil
	}, func() string { return "no look: " + err.Error() })
	return look
}

// A look at a thread that waits has its system call, and the memory at its stack pointer.
func TestLook(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fd := int(r.Fd())
	tids := make(chan int)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		tids <- unix.Gettid()
		_, _ = unix.Read(fd, make([]byte, 1))
	}()
	tid := <-tids
	began := monotonic.Now()
	var look Look
	for look.Call != unix.SYS_READ || look.Function == "" { // it may wait for a moment elsewhere before
		look = await(t, os.Getpid(), tid)
	}
	if look.PID != os.Getpid() || look.TID != tid || look.State != 'S' || look.Forbidden || look.From < began || look.Time < look.From {
		t.Errorf("got %+v, want the thread, asleep", look)
	}
	sp, pc := binary.NativeEndian.Uint64(look.User.Regs), binary.NativeEndian.Uint64(look.User.Regs[8:])
	call, err := procfs.Thread(os.Getpid(), tid).Syscall()
	if err != nil || call.SP != sp || call.PC != pc || len(look.User.Regs) != 16 {
		t.Errorf("got registers %#x and %#x, want %+v, %v", sp, pc, call, err)
	}
	if n := len(look.User.Stack); n < 8 || look.User.Full != (n == stackCopy) {
		t.Errorf("got %d bytes of the stack, full: %t", n, look.User.Full)
	}
	if err := errors.Join(w.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	<-done
}

// A thread that runs, has ended or was reaped is no thread that waits, and nor is one without a tracer's rights known as such.
func TestLookAtOthers(t *testing.T) {
	var l Looker
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if look, err := l.Look(os.Getpid(), unix.Gettid()); !errors.Is(err, ErrRuns) {
		t.Errorf("got %+v, %v of this thread, want %v", look, err, ErrRuns)
	}
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	testenv.Await(t, func() bool { s, err := procfs.Process(pid).Stat(); return err == nil && s.Exited() }, func() string { return "it runs on" })
	if look, err := l.Look(pid, pid); !errors.Is(err, ErrRuns) {
		t.Errorf("got %+v, %v of a zombie, want %v", look, err, ErrRuns)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if look, err := l.Look(pid, pid); !errors.Is(err, ErrGone) {
		t.Errorf("got %+v, %v after the end, want %v", look, err, ErrGone)
	}
}

// Whoever may not trace a process still learns that it waits, but nothing of its stack.
func TestLookForbidden(t *testing.T) {
	testenv.AsNobody(t, func(t *testing.T) {
		if os.Geteuid() == 0 {
			return
		}
		const init = 1 // of root
		look := await(t, init, init)
		if !look.Forbidden || look.Call != procfs.NoCall || len(look.User.Stack) != 0 || look.Function != "" {
			t.Errorf("got %+v; want nothing but its state", look)
		}
	})
}

func BenchmarkLook(b *testing.B) {
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	tids := make(chan int)
	go func() {
		tids <- unix.Gettid()
		_, _ = unix.Read(int(r.Fd()), make([]byte, 1))
	}()
	tid := <-tids
	time.Sleep(10 * time.Millisecond)
	var l Looker
	for b.Loop() {
		if _, err := l.Look(os.Getpid(), tid); err != nil {
			b.Fatal(err)
		}
	}
	_ = w.Close()
}
