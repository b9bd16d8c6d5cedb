package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// init keeps the main goroutine on the first thread, which cannot end before the process.
func init() { runtime.LockOSThread() }

// TestThreadEnds starts a child in a goroutine whose thread then ends. The child lives on.
func TestThreadEnds(t *testing.T) {
	cmd := exec.Command(testenv.Tool(t, "cat"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	thread := make(chan int)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		failed = Start(cmd)
		thread <- unix.Gettid()
	}()
	path := fmt.Sprintf("/proc/self/task/%d", <-thread)
	if failed != nil {
		t.Fatal(failed)
	}
	testenv.Await(t, func() bool {
		_, err := os.Stat(path)
		return err != nil
	}, func() string { return "the thread does not end" })
	// A child that has been sent a signal does not answer any more.
	_, err = fmt.Fprintln(in, "alive")
	line, readErr := bufio.NewReader(out).ReadString('\n')
	if err != nil || readErr != nil || line != "alive\n" {
		t.Errorf("got %q and the errors %v and %v from the child, want that it lives", line, err, readErr)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestProcessEnds ends a process without any cleanup. Its child is killed.
func TestProcessEnds(t *testing.T) {
	const variable = "FULGUR_TEST_CHILD"
	if os.Getenv(variable) != "" { // the process that ends
		child := exec.Command("sleep", "1000")
		if err := Start(child); err != nil {
			t.Fatal(err)
		}
		fmt.Println(child.Process.Pid)
		os.Exit(0)
	}
	testenv.Tool(t, "sleep")
	parent := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), variable+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(bufio.NewReader(out), &pid); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err != nil {
		t.Fatal(err)
	}
	// Nobody may reap it, as in a container without an init process.
	testenv.Await(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, func() string {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return "the child outlived its parent"
	})
}
