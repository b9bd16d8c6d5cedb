package uprobe

import (
	"fmt"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
)

// CheckTracer returns an error if a process is traced, as by a debugger. A debugger that sets a breakpoint
// at a uprobe takes the uprobe for the program's code, and restores it when the kernel does not know it any
// more: SIGTRAP would end the program. strace sets none.
func CheckTracer(pid int) error {
	status, err := procfs.Process(pid).Status()
	if err != nil || status.TracerPID == 0 {
		return nil // it may have exited; attaching says so
	}
	tracer, err := procfs.Process(status.TracerPID).Comm()
	if err != nil || tracer == "strace" {
		return nil
	}
	return fmt.Errorf("process %d is traced by %s (process %d), whose breakpoints at the same places would end the program: detach it first", pid, plain.Terminal(tracer), status.TracerPID)
}
