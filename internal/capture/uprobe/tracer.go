package uprobe

import (
	"fmt"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
)

// maxThreads limits the threads that are checked, besides the first one of each process.
const maxThreads = 1 << 14

// CheckTracers returns an error if a process in which uprobes are attached is traced, as by a debugger.
// A debugger that sets a breakpoint at a uprobe takes the uprobe for the program's code, and restores it
// when the kernel does not know it any more: SIGTRAP would end the program. strace sets none.
func CheckTracers(t target.Target) error {
	left := maxThreads
	for _, pid := range own(t) {
		if pid == 0 {
			continue
		}
		for id := range procfs.Tracers(pid, &left) {
			tracer, _ := procfs.Process(id).Comm() // it may be gone
			if tracer != "strace" {
				return fmt.Errorf("process %d is traced by %s (process %d), whose breakpoints at the same places could end the program: detach it first", pid, plain.Terminal(tracer), id)
			}
		}
	}
	return nil
}
