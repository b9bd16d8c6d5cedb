package testenv

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"
)

// DieWithTest lets the kernel kill cmd's process when this process ends, even if a time limit
// ends it without the test's cleanups. Call it and start cmd in the test's goroutine: the kernel
// kills the process when the thread that started it ends, so the goroutine keeps its thread to
// itself until the test ends.
func DieWithTest(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
