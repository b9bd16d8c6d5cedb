// Package memlock lifts the limit on locked memory, RLIMIT_MEMLOCK, where the kernel
// counts BPF programs and maps against it: before Linux 5.11.
package memlock

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Lift lifts the limit of this process. Further calls, and calls on newer kernels, do
// nothing. Without CAP_SYS_RESOURCE it raises the limit only to the hard limit; the kernel
// then refuses maps that exceed it.
func Lift() { before() }

// before returns the limit from before it was lifted, or nil if it was not.
var before = sync.OnceValue(func() *unix.Rlimit {
	var limit, now unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil {
		return nil
	}
	if rlimit.RemoveMemlock() != nil {
		hard := unix.Rlimit{Cur: limit.Max, Max: limit.Max}
		if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &hard) != nil {
			return nil
		}
	}
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &now) != nil || now == limit {
		return nil
	}
	return &limit
})

// Restore sets the limit of a process that inherited the lifted one back to the limit
// from before [Lift].
func Restore(pid int) error {
	limit := before()
	if limit == nil {
		return nil
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, limit, nil); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("restore the limit on locked memory of process %d: %w", pid, os.NewSyscallError("prlimit", err))
	}
	return nil
}
