package process

import (
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// survivorVar makes the test binary a process whose first thread exits before the others.
const survivorVar = "FULGUR_TEST_SURVIVOR"

func init() {
	if os.Getenv(survivorVar) != "" {
		runtime.LockOSThread() // keeps main on the first thread
	}
}

// outlive ends the first thread. The process ends at the end of its input.
func outlive() {
	go func() {
		for end := time.Now().Add(testenv.TimeLimit()); procfs.Survivor(os.Getpid()) == os.Getpid(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				fmt.Println("timeout: the first thread still lives")
				os.Exit(1)
			}
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // ends only the thread
}

// TestSurvivor checks that a process is still readable and known after its first thread
// has exited.
func TestSurvivor(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(self)
	cmd.Env = append(os.Environ(), survivorVar+"=1")
	in, out := start(t, cmd)
	awaitReady(t, out)
	pid := cmd.Process.Pid
	if tid := procfs.Survivor(pid); tid == pid || tid == 0 {
		t.Fatalf("got survivor %d of process %d, want another thread", tid, pid)
	}

	table := NewTable(Options{})
	t.Cleanup(func() { _ = table.Close() }) // read-only
	checkMaps(t, table, pid)
	if table.Gone() != 0 {
		t.Errorf("got %d processes gone, want 0", table.Gone())
	}
	if exe, err := procfs.Executable(pid); err != nil || exe != self {
		t.Errorf("got program %q, %v; want %q", exe, err, self)
	}
	if _, err := os.Stat(procfs.Program(pid)); err != nil {
		t.Error("the program's own path:", err)
	}
	memory := make([]byte, 4)
	if err := NewMemory(pid, safeopen.NewBudget()).Read(memory, mapsOf(t, pid)[0].Start); err != nil {
		t.Error(err)
	}
	fd, err := safeopen.Ask(nil, procRoot(pid), func(r *safeopen.Request) (int, error) { return openInRoot(r, pid, self) })
	if err != nil {
		t.Error("through the process's root:", err)
	} else {
		_ = unix.Close(fd)
	}
	if os.Geteuid() == 0 { // map_files is for root
		maps := mapsOf(t, pid)
		nowhere := origin{pid: pid, start: maps[0].Start, limit: maps[0].Limit}
		if got, err := contents(newFiles(1).intern(keyOf(maps[0]), "/nowhere", nowhere)); err != nil || got == "" {
			t.Errorf("through its mapping: got %d bytes, %v; want the file", len(got), err)
		}
	}

	ended := monotonic.Now()
	table.Apply(exit(ended, pid, pid))
	table.Forget(ended + 1)
	if table.images[pid] == nil {
		t.Fatal("the process was forgotten while a thread was alive")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	table.Forget(monotonic.Now())
	if table.images[pid] != nil {
		t.Error("the process is still in the table")
	}
}
