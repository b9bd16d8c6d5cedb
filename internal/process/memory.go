package process

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
)

// Read reads something about process pid from /proc, within the budget. Reading its mappings or its
// environment may block on threads that change its mappings, which in turn may wait for a file system
// that does not respond. The error then wraps [safeopen.ErrNoAnswer].
func Read[T any](b *safeopen.Budget, pid int, read func(procfs.Task) (T, error)) (T, error) {
	return safeopen.Ask(b, procRoot(pid), func(*safeopen.Request) (T, error) { return read(procfs.Process(pid)) })
}

// Memory reads the memory of a running process. Its reads are limited in time: a process
// may map files of a file system that hangs.
type Memory struct {
	pid    int
	budget *safeopen.Budget
}

// NewMemory returns the memory of process pid. Reads wait no longer than the budget allows.
func NewMemory(pid int, b *safeopen.Budget) *Memory { return &Memory{pid, b} }

var toReadMemory = capability.SetOf(capability.SysPtrace)

// Read fills b with the bytes from an address on. It needs the right to trace the process.
// The error wraps [unix.EFAULT] if the process has no memory there.
func (m *Memory) Read(b []byte, addr uint64) error {
	if len(b) == 0 {
		return nil
	}
	size := len(b)
	got, err := safeopen.Ask(m.budget, safeopen.Backend{Path: procfs.Path(m.pid, "mem")}, func(*safeopen.Request) ([]byte, error) {
		return capability.With(toReadMemory, func() ([]byte, error) { return readMemory(m.pid, size, addr) })
	})
	if err != nil {
		return fmt.Errorf("read memory of process %d: %w", m.pid, err)
	}
	copy(b, got)
	return nil
}

// readMemory reads size bytes. It allocates its own buffer, because a read that hangs may end
// after the caller has given up.
func readMemory(pid, size int, addr uint64) ([]byte, error) {
	b := make([]byte, size)
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(size)
	n, err := procfs.Through(pid, func(id int) (int, error) {
		return unix.ProcessVMReadv(id, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: size}}, 0)
	})
	if err != nil {
		return nil, os.NewSyscallError("process_vm_readv", err)
	}
	if n < size {
		return nil, os.NewSyscallError("process_vm_readv", unix.EFAULT)
	}
	return slices.Clip(b), nil
}
