// Package rcu waits for what runs under the kernel's read-copy-update, BPF
// programs above all, so that what they may have read can be used again.
package rcu

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Wait returns when every BPF program that was running when it was
// called has ended: they run under RCU, and MEMBARRIER_CMD_GLOBAL waits for a
// grace period. Kernels with nohz_full CPUs refuse the command; there the
// calling thread visits every CPU it may run on, because a CPU that schedules
// it has left the interrupt its program ran in.
func Wait() error {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, 1 /* MEMBARRIER_CMD_GLOBAL */, 0, 0)
	if errno == 0 {
		return nil
	}
	return visitCPUs()
}

func visitCPUs() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("wait for running programs: %w", err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &allowed) }()
	for cpu := range len(allowed) * 64 {
		if !allowed.IsSet(cpu) {
			continue
		}
		one.Zero()
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("wait for running programs on CPU %d: %w", cpu, err)
		}
	}
	return nil
}
