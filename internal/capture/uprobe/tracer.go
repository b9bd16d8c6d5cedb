package uprobe

import (
	"fmt"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
)

// CheckTracers returns an error if a process in which uprobes are attached is traced, as by a debugger. A debugger that sets a breakpoint
// at a uprobe takes the uprobe for the program's code, and restores it when the kernel does not know it any
// more: SIGTRAP would end the program. strace sets none.
func CheckTracers(t target.Target) error {
	for _, pid := range own(t) {
		if err := checkTracer(pid); pid != 0 && err != nil {
			return err
		}
	}
	return nil
}

func checkTracer(pid int) error {
	status, _ := procfs.Process(procfs.Survivor(pid)).Status() // if it has exited, attaching says so
	if status.TracerPID == 0 {
		return nil
	}
	tracer, _ := procfs.Process(status.TracerPID).Comm()
	if tracer == "strace" {
		return nil
	}
	return fmt.Errorf("process %d is traced by %s (process %d), whose breakpoints at the same places could end the program: detach it first", pid, plain.Terminal(tracer), status.TracerPID)
}
