// Package child starts programs that end with this process.
package child

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter runs functions on a thread that lives as long as this process. The kernel sends a child the
// signal of its parent's death when the thread that started it ends. Go ends the thread of a goroutine
// that returns while it is locked to it, and the thread may have started children for others before.
var starter = sync.OnceValue(func() chan<- func() {
	functions := make(chan func())
	go func() {
		runtime.LockOSThread() // and never unlocked
		for f := range functions {
			f()
		}
	}()
	return functions
})

// Start is like cmd.Start, from any goroutine. The kernel kills cmd's process when this process ends, even
// if it is killed. It does not if exec changes the program's rights: then the kernel drops the order.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}
