// Package uprobe attaches BPF programs to instructions of files, and detaches them. A helper process
// does both, so that no breakpoints stay in programs if this process is killed. The package also finds
// out what the running kernel supports, which debuggers are in the way, and what a hit costs.
package uprobe

import (
	"errors"
	"io/fs"
	"math"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"fulgur/internal/capture/target"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
)

// FiltersProcesses reports whether a link for a process is for all of its threads. Before
// Linux 6.10 it is for the first one only. These kernels also look up a PID that cannot
// exist instead of refusing it. program is of the type of such links. The file does not
// matter, and the file system of the target's own may not respond.
func FiltersProcesses(program *ebpf.Program) (bool, error) {
	file, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return false, err
	}
	attached, err := file.UprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: []uint64{1}, PID: math.MaxUint32})
	if err == nil {
		_ = attached.Close() // in no process
	}
	return !errors.Is(err, fs.ErrNotExist), nil
}

// errRemote is the reason why a file is refused.
var errRemote = errors.New("the file is on a file system that may not respond (FUSE): copy the file to a local disk, and run the copy")

// ErrLent is the reason why users of file capabilities are refused.
var ErrLent = errors.New("uprobes need root, the capabilities of fulgur's file are not enough: run fulgur with sudo")

// CheckFile returns an error if programs must not be attached to instructions of a file. Capabilities
// that the file of fulgur lends must not change other users' processes. On FUSE, the kernel may wait
// for the instructions forever, while it holds locks of the target.
func CheckFile(file *safeopen.File) error {
	if err := CheckPrivileges(); err != nil {
		return err
	}
	if file.Remote() {
		return errRemote
	}
	return nil
}

// CheckPrivileges returns [ErrLent] if [CheckFile] would return it for any file.
func CheckPrivileges() error {
	if capability.Lent() {
		return ErrLent
	}
	return nil
}

// Processes returns the processes to attach uprobes in, 0 for all. Other processes that map
// the file can be spared only if children are not measured: the kernel removes the
// breakpoints that a child inherits. Nor can they if the first thread of a process has ended: the
// kernel compares the address space of that thread, which has none any more. The programs
// themselves count hits of the target alone.
func Processes(t target.Target) []int {
	pids := own(t)
	if !IsOwn(t) || slices.ContainsFunc(pids, FirstEnded) {
		return []int{0}
	}
	return pids
}

// IsOwn reports whether other processes shall be spared.
func IsOwn(t target.Target) bool { return !t.Children && !slices.Contains(own(t), 0) }

// own returns the processes that a target names, 0 for others.
func own(t target.Target) []int {
	switch t.Scope {
	case target.Processes:
		return t.PIDs
	case target.Threads:
		return target.ProcessesOf(t.TIDs)
	}
	return []int{0}
}

// FirstEnded reports whether the first thread of a process has ended, and others have not.
func FirstEnded(pid int) bool {
	tid := procfs.Survivor(pid)
	return tid != 0 && tid != pid
}
