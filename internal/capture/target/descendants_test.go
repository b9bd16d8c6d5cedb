package target

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
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
	// Two sleeps and a shell; they take a moment to be there.
	for len(found) < 3 {
		time.Sleep(time.Millisecond)
		var err error
		if found, err = Descendants([]int{pid}); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Contains(found, pid) {
		t.Errorf("%d descends from itself: %v", pid, found)
	}
	if !AnyAlive(found) {
		t.Error("none of the descendants is alive")
	}
	for _, child := range found {
		if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	if AnyAlive([]int{1 << 30}) {
		t.Error("a process that never was is alive")
	}
}
