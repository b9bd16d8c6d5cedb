package tracing

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// Read returns the part of memory that can be read: the kernel reads the pages before one that it cannot read.
func TestRead(t *testing.T) {
	page := os.Getpagesize()
	memory, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Munmap(memory); err != nil {
			t.Error(err)
		}
	}()
	for i := range memory {
		memory[i] = byte(i * 7)
	}
	if err := unix.Mprotect(memory[2*page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	start := uint64(uintptr(unsafe.Pointer(&memory[0])))
	for _, test := range []struct{ offset, size, want int }{
		{0, 16, 16}, {5, page, page}, {page - 8, 16, 16}, {2*page - 8, 16, 8}, {16, 16 << 10, 2*page - 16}, {2 * page, 8, 0}, {0, 0, 0},
	} {
		got := Read(os.Getpid(), start+uint64(test.offset), make([]byte, test.size))
		want := min(test.want, test.size)
		if !bytes.Equal(got, memory[test.offset:test.offset+want]) {
			t.Errorf("%d bytes at %d: got %d, want %d", test.size, test.offset, len(got), want)
		}
	}
}

// A stop reads the registers, and passes on the signal for which the thread has stopped. Wait leaves the end of another
// child alone.
func TestStop(t *testing.T) {
	if Scope() > 1 && os.Geteuid() != 0 {
		testenv.Skip(t, "needs root, or kernel.yama.ptrace_scope below 2")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(testenv.Tool(t, "sleep"), "1000")
	other := exec.Command(testenv.Tool(t, "true"))
	for _, c := range []*exec.Cmd{cmd, other} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	pid := cmd.Process.Pid
	testenv.Await(t, func() bool {
		stat, err := procfs.Process(pid).Stat()
		return err == nil && stat.State == 'S' && stat.Comm == "sleep"
	}, func() string { return "the program does not sleep" })
	if _, err := Wait(pid, unix.WNOHANG); err != nil {
		t.Errorf("before Seize: got %v, want nothing for a child", err)
	}
	if err := Seize(pid); err != nil {
		t.Fatal(err)
	}
	if err := Interrupt(pid); err != nil {
		t.Fatal(err)
	}
	change, err := Wait(pid, 0)
	if err != nil || !change.Stopped() || !change.Event() || change.Signal() != unix.SIGTRAP || change.Passed() != 0 || change.TID != pid {
		t.Fatalf("got %+v, %v, want a stop", change, err)
	}
	if found, err := Stopped(); err != nil || found.TID != pid {
		t.Errorf("got %+v, %v, want the stop of process %d", found, err, pid)
	}
	var r Registers
	if err := r.Read(pid); err != nil || r.Foreign() || r.PC() == 0 || r.SP() == 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	if call := r.Call(pid); call != Restarts {
		t.Errorf("got %v for a thread that sleeps, want %v", call, Restarts)
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := Call(unix.PTRACE_CONT, pid, 0); err != nil {
		t.Fatal(err)
	}
	if change, err = Wait(pid, 0); err != nil || change.Event() || change.Passed() != unix.SIGTERM {
		t.Fatalf("got %+v, %v, want a stop for SIGTERM", change, err)
	}
	if err := Detach(pid, change.Passed()); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(interface{ Signal() unix.Signal }).Signal() != unix.SIGTERM {
		t.Errorf("got %v, want the end by SIGTERM", err)
	}
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
}

// Attaching to nothing, to this process and to a traced process fails for the stated reasons.
func TestErrors(t *testing.T) {
	if err := Permitted(); err != nil {
		testenv.Skip(t, "needs ptrace: %v", err)
	}
	const nobody = 1 << 30
	if err := Seize(nobody); !errors.Is(err, unix.ESRCH) {
		t.Errorf("got %v, want %v", err, unix.ESRCH)
	}
	if err := Allowed(nobody); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want %v", err, ErrGone)
	}
	if err := Allowed(os.Getpid()); err != nil {
		t.Error(err)
	}
	if err := Seize(os.Getpid()); !errors.Is(err, unix.EPERM) {
		t.Errorf("got %v for this process, want %v", err, unix.EPERM)
	}
	if err := Traced(procfs.Status{}); err != nil {
		t.Error(err)
	}
	if err := Traced(procfs.Status{TracerPID: os.Getpid()}); !errors.Is(err, ErrTraced) {
		t.Errorf("got %v, want %v", err, ErrTraced)
	}
}
