package jumps

import (
	"slices"

	"fulgur/internal/linux/procfs"
)

// maxChecked limits the processes that are checked before a window, and maxThreads their threads
// besides the first one of each.
const (
	maxChecked = 256
	maxThreads = 1024
)

// traced reports whether a thread of the processes that execute the code is traced, as by a
// debugger. A debugger that sets a breakpoint on a probe takes the probe for the program's
// code and restores it later, when the kernel does not know it any more: the program would
// be killed by SIGTRAP.
func (c *Counter) traced() bool {
	pids := slices.Clone(c.o.Target.PIDs)
	var pid uint32
	var executes uint8
	all := c.kernel.objects.JumpProcesses.Iterate()
	for len(pids) < maxChecked && all.Next(&pid, &executes) {
		pids = append(pids, int(pid))
	}
	left := maxThreads
	for _, pid := range pids {
		for range procfs.Tracers(pid, &left) {
			return true
		}
	}
	return false
}
