package target

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
)

// Reasons why a target cannot be measured. [Check] wraps them with the target's
// name. See also [ThreadError].
var (
	// ErrNotFound means that the process, thread, CPU or cgroup does not exist,
	// or has exited.
	ErrNotFound = errors.New("not found")
	// ErrNoTask and ErrNoCgroup are ErrNotFound for a process or thread that is
	// not in /proc, and for a cgroup.
	ErrNoTask   = fmt.Errorf("%w", ErrNotFound)
	ErrNoCgroup = fmt.Errorf("%w", ErrNotFound)
	// ErrKernelThread means that the task is a kernel thread.
	ErrKernelThread = errors.New("is a kernel thread")
	// ErrOffline means that the CPU is offline.
	ErrOffline = errors.New("is offline")
	// ErrNotCgroup means that the path is not a cgroup v2 directory.
	ErrNotCgroup = errors.New("is not a cgroup v2 directory")
)

// ThreadError means that a thread ID was given instead of a process ID.
type ThreadError struct{ TID, PID int }

// Error implements error.
func (e ThreadError) Error() string {
	return fmt.Sprintf("%d is a thread of process %d, not a process", e.TID, e.PID)
}

// Check reports whether t can be measured: whether it exists and is of the right
// kind. It may still exit a moment later.
func Check(t Target) error {
	if err := checkProcesses(t); err != nil {
		return err
	}
	for _, tid := range t.TIDs {
		if err := checkTask("thread", tid); err != nil {
			return err
		}
	}
	for _, cpu := range t.CPUs {
		if err := checkCPU(cpu); err != nil {
			return err
		}
	}
	if t.Scope == Cgroup {
		return checkCgroup(t.CgroupPath)
	}
	return nil
}

// checkProcesses checks the processes of a target. A container's processes were not named by
// the user: some may have exited since they were found.
func checkProcesses(t Target) (gone error) {
	for _, pid := range t.PIDs {
		err := checkProcess(pid)
		switch named := t.Named != profile.GroupNone; {
		case named && err == nil:
			return nil
		case named && errors.Is(err, ErrNotFound):
			gone = err
		case err != nil:
			return err
		}
	}
	return gone
}

func checkProcess(pid int) error {
	if err := checkTask("process", pid); err != nil {
		return err
	}
	status, err := procfs.Process(pid).Status()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("process %d: %w", pid, ErrNoTask)
	}
	if err != nil {
		return fmt.Errorf("check process %d: %w", pid, err)
	}
	if tgid := status.TGID; tgid != pid {
		return ThreadError{TID: pid, PID: tgid}
	}
	return nil
}

// checkTask checks properties that processes and threads share: /proc/ID/stat exists
// for both, although a directory listing shows only processes.
func checkTask(noun string, id int) error {
	s, err := procfs.Process(id).Stat()
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("%s %d: %w", noun, id, ErrNoTask)
	case err != nil:
		return fmt.Errorf("check %s %d: %w", noun, id, err)
	case s.Ended() || s.Exited() && noun == "thread":
		return fmt.Errorf("%s %d (%q) has exited: %w", noun, id, s.Comm, ErrNotFound)
	case s.KernelThread:
		return fmt.Errorf("%s %d (%q) %w: profile the whole system to see it", noun, id, s.Comm, ErrKernelThread)
	}
	return nil
}

func checkCPU(cpu int) error {
	dir := fmt.Sprintf("/sys/devices/system/cpu/cpu%d", cpu)
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("CPU %d %w: see /sys/devices/system/cpu/online", cpu, ErrNotFound)
	}
	// CPUs that cannot go offline lack this file.
	online, err := os.ReadFile(filepath.Join(dir, "online"))
	if err == nil && string(bytes.TrimSpace(online)) == "0" {
		return fmt.Errorf("CPU %d %w", cpu, ErrOffline)
	}
	return nil
}

func checkCgroup(path string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		if err == unix.ENOENT {
			return fmt.Errorf("cgroup %s: %w", path, ErrNoCgroup)
		}
		return fmt.Errorf("cgroup %s: %w", path, err)
	}
	dir, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC || !dir.IsDir() {
		return fmt.Errorf("%s %w", path, ErrNotCgroup)
	}
	return nil
}
