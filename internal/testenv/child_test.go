package testenv

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestDieWithTest(t *testing.T) {
	const variable = "FULGUR_TEST_CHILD"
	if os.Getenv(variable) != "" { // the process that ends without cleanups
		child := exec.Command("sleep", "1000")
		DieWithTest(t, child)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Println(child.Process.Pid)
		os.Exit(0)
	}
	Tool(t, "sleep")
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
	Await(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, func() string {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return "the child outlived its parent"
	})
}
