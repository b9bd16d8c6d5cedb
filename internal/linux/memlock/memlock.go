// Package memlock lifts the limit on locked memory, RLIMIT_MEMLOCK, on kernels before
// Linux 5.11, which charge BPF programs and maps to it.
package memlock

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Lift lifts the limit of this process. Further calls and calls on newer kernels have no
// effect. Without CAP_SYS_RESOURCE, it raises the limit only to the hard limit, and the
// kernel rejects maps that exceed it.
func Lift() { before() }

// before returns the limit before it was lifted, or nil if it was not lifted.
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

// Restore resets the limit of a process that inherited the lifted one to its value before
// [Lift].
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
