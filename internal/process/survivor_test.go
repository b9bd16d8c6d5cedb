package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/answer"
	"fulgur/internal/linux/monotonic"
)

// survivorVar makes the test binary a process whose first thread ends before
// the others.
const survivorVar = "FULGUR_TEST_SURVIVOR"

func init() {
	if os.Getenv(survivorVar) != "" {
		runtime.LockOSThread() // keeps main on the first thread
	}
}

// outlive ends the first thread, and the process at the end of its input.
func outlive() {
	go func() {
		for lives(os.Getpid()) {
			time.Sleep(time.Millisecond)
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // of the thread alone
}

// TestSurvivor has a process whose first thread has ended: all that is known
// of it, and can be read, is so still.
func TestSurvivor(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(self)
	cmd.Env = append(os.Environ(), survivorVar+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // may be gone
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	pid := cmd.Process.Pid
	if tid := survivor(pid); tid == pid || tid == 0 {
		t.Fatalf("survivor %d of process %d", tid, pid)
	}

	table := NewTable(Options{})
	t.Cleanup(func() { _ = table.Close() }) // read-only
	checkMaps(t, table, pid)
	if table.Gone() != 0 {
		t.Errorf("%d processes gone", table.Gone())
	}
	fd, err := answer.Ask(near(pid), func(v *answer.Visit) (int, error) { return openInRoot(v, pid, self) }, func(int, error) {})
	if err != nil {
		t.Error("by the process's root:", err)
	} else {
		_ = unix.Close(fd)
	}
	if os.Geteuid() == 0 { // map_files is for root
		maps, err := readMaps(pid)
		if err != nil {
			t.Fatal(err)
		}
		nowhere := source{pid: pid, start: maps[0].Start, limit: maps[0].Limit}
		if got, err := contents(newFiles(1).intern(keyOf(maps[0]), "/nowhere", nowhere)); err != nil || got == "" {
			t.Errorf("by its mapping: %d bytes, %v", len(got), err)
		}
	}

	ended := monotonic.Now()
	table.Apply(exit(ended, pid, pid))
	table.Forget(ended + 1)
	if table.images[pid] == nil {
		t.Fatal("forgotten while a thread lived")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	table.Forget(monotonic.Now())
	if table.images[pid] != nil {
		t.Error("not forgotten")
	}
}
