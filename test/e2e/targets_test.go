package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/testenv"
)

// Children that exist when a profile begins are sampled, and the profile lasts until all
// of them have exited.
func TestProfileExistingChildren(t *testing.T) {
	testenv.Root(t)
	// The shell exits at the end of its input, its child by itself.
	parent := exec.Command(testenv.Tool(t, "sh"), "-c", os.Args[0]+" & read x")
	parent.Env = append(os.Environ(), "E2E_WORKLOAD=20s")
	input, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var descendants []int
	testenv.Await(t, func() bool {
		var err error
		if descendants, err = target.Descendants([]int{parent.Process.Pid}); err != nil {
			t.Fatal(err)
		}
		return len(descendants) == 1
	}, func() string { return fmt.Sprintf("children of the shell = %v, want one", descendants) })
	awaitWork(t, strconv.Itoa(descendants[0]), 50*time.Millisecond) // it is at work
	cmd := command(t, "profile", "-p", strconv.Itoa(parent.Process.Pid), "--children", "-F", "199", "-f", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, cmd)
	if err := input.Close(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Fatal("the shell read its input, want an error")
	}
	awaitWork(t, strconv.Itoa(descendants[0]), 300*time.Millisecond)
	awaitSampling(t, cmd) // still
	if err := syscall.Kill(descendants[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := finish(t, cmd)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	checkShares(t, folded(t, r.stdout))
}

// The time in which the kernel tears down a process belongs to the process.
func TestProfileExit(t *testing.T) {
	testenv.Root(t)
	cmd := command(t, "profile", "-F", "4999", "-f", "--", os.Args[0])
	cmd.Env = append(os.Environ(), "E2E_WORKLOAD=memory")
	r := finish(t, cmd)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	for stack := range folded(t, r.stdout) {
		if strings.Contains(stack, ";exit_mmap;") {
			return
		}
	}
	t.Errorf("got no sample in exit_mmap:\n%s", r.stdout)
}
