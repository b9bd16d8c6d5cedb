// Package rcu waits for RCU readers in the kernel, BPF programs above all, so that memory
// they may have read can be reused.
package rcu

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Wait returns when all BPF programs that were running at the call have ended. They run
// under RCU, and MEMBARRIER_CMD_GLOBAL waits for a grace period. Kernels with nohz_full
// CPUs reject the command. There the calling thread runs once on every CPU it is allowed
// to: a CPU that schedules it has left the interrupt in which its program ran.
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
