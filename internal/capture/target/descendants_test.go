package target

import (
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"fulgur/internal/testenv"
)

func TestDescendants(t *testing.T) {
	shell := exec.Command("sh", "-c", "sh -c 'sleep 60; true' & sleep 60; true")
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
	}()
	pid := shell.Process.Pid
	var found []int
	testenv.Await(t, func() bool {
		var err error
		if found, err = Descendants([]int{pid}); err != nil {
			t.Fatal(err)
		}
		return len(found) >= 3
	}, func() string { return fmt.Sprintf("got the descendants %v, want two sleeps and a shell", found) })
	if slices.Contains(found, pid) {
		t.Errorf("got %d among its own descendants %v", pid, found)
	}
	if !AnyAlive(found) {
		t.Error("got no live process among the descendants")
	}
	for _, child := range found {
		if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	if AnyAlive([]int{1 << 30}) {
		t.Error("got true for a pid that never existed, want false")
	}
}
