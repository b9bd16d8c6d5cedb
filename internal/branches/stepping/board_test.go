package stepping

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// board is the memory that the program steadfast (testdata/steadfast.c) shares with the
// test, and where the program records its state.
type board struct {
	ready, turns atomic.Uint64
	// wrong is the number of failed checks; what is the last failed check.
	wrong, what atomic.Uint64
	next        atomic.Uint64 // the payload that the next real-time signal must have
	heard       [65]atomic.Uint64
}

// steadfast starts the program, compiled to bin, in the given mode, and kills it when the
// test ends.
func steadfast(t *testing.T, bin, mode string) (*board, *exec.Cmd) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "board")
	if err := os.WriteFile(file, make([]byte, os.Getpagesize()), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	memory, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(memory) })
	b := (*board)(unsafe.Pointer(&memory[0]))
	cmd := launch(t, bin, file, mode)
	eventually(t, "ready", func() bool { return b.ready.Load() != 0 })
	return b, cmd
}

// check fails the test if the program was harmed: if it has exited, failed a check of its
// own, makes no progress, or is still traced.
func (b *board) check(t *testing.T, pid int) {
	t.Helper()
	if hasEnded(t, pid) {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, 0, nil)
		t.Fatalf("the target exited: signal %v, exit code %d, %v", status.Signal(), status.ExitStatus(), err)
	}
	if n := b.wrong.Load(); n > 0 {
		t.Errorf("%d checks of the target failed, the last one was check %d", n, b.what.Load())
	}
	before := b.turns.Load()
	testenv.Await(t, func() bool { return b.turns.Load() > before+1 }, func() string {
		return fmt.Sprintf("the target makes no progress: state %c, traced by %d", stateOf(t, pid), tracerOf(t, pid))
	})
}

// hasEnded reports whether a child of the test has exited. The state in /proc does not
// show that: the first thread is also a zombie while another thread executes a program.
func hasEnded(t *testing.T, pid int) bool {
	t.Helper()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	return info.Signo != 0
}

// tracerOf returns the pid of a process's tracer, 0 if there is none.
func tracerOf(t *testing.T, pid int) int {
	t.Helper()
	status, err := procfs.Process(pid).Status()
	if err != nil {
		t.Fatal(err)
	}
	return status.TracerPID
}
