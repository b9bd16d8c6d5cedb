package stepping

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// board is what the program steadfast, see testdata/steadfast.c, records of
// itself in memory that it shares with the test.
type board struct {
	ready, turns atomic.Uint64
	// wrong counts the checks that failed; what is the number of the last.
	wrong, what atomic.Uint64
	next        atomic.Uint64 // the payload that the next real-time signal must have
	heard       [65]atomic.Uint64
}

// steadfast starts the program, compiled to bin, in the given mode, and ends it
// with the test.
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

// check fails the test if the program was harmed: if it has ended, found
// something wrong, does not go on, or is still traced.
func (b *board) check(t *testing.T, pid int) {
	t.Helper()
	if hasEnded(t, pid) {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, 0, nil)
		t.Fatalf("the target has ended: signal %v, exit code %d, %v", status.Signal(), status.ExitStatus(), err)
	}
	if n := b.wrong.Load(); n > 0 {
		t.Errorf("the target found %d things wrong, the last by check %d", n, b.what.Load())
	}
	before := b.turns.Load()
	deadline := time.Now().Add(testenv.Patience(time.Minute))
	for b.turns.Load() <= before+1 {
		if time.Now().After(deadline) {
			t.Errorf("the target does not go on: state %c, traced by %d", stateOf(t, pid), tracerOf(t, pid))
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// hasEnded reports whether a child of the test has ended. Its state does not
// tell: the first thread has ended, too, while another executes a program.
func hasEnded(t *testing.T, pid int) bool {
	t.Helper()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	return info.Signo != 0
}

// tracerOf returns the process that traces another, 0 if none does.
func tracerOf(t *testing.T, pid int) int {
	t.Helper()
	status, err := procfs.Process(pid).Status()
	if err != nil {
		t.Fatal(err)
	}
	return status.TracerPID
}
