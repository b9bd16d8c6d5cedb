package uprobe

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"fulgur/internal/capture/target"
)

func TestCheckTracers(t *testing.T) {
	if err := CheckTracers(target.Target{Scope: target.Processes, PIDs: []int{os.Getpid()}}); err != nil {
		t.Error(err)
	}
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	traced := target.Target{Scope: target.Processes, PIDs: []int{cmd.Process.Pid}}
	if err := CheckTracers(traced); err == nil || !strings.Contains(err.Error(), "detach it first") {
		t.Errorf("got %v, want that it is traced", err)
	}
}
