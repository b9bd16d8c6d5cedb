// Package uprobe finds out how the running kernel handles uprobe_multi links, and measures
// what a hit of a uprobe costs.
package uprobe

import (
	"errors"
	"io/fs"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"fulgur/internal/capture/target"
)

// FiltersProcesses reports whether a link for a process is for all of its threads. Before
// Linux 6.10 it is for the first one only. These kernels also look up a PID that cannot
// exist instead of refusing it. program is of the type of such links, and offset the file
// offset of an instruction in file.
func FiltersProcesses(file *link.Executable, program *ebpf.Program, offset uint64) bool {
	attached, err := file.UprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: []uint64{offset}, PID: math.MaxUint32})
	if err == nil {
		_ = attached.Close() // in no process
	}
	return !errors.Is(err, fs.ErrNotExist)
}

// Processes returns the processes to attach uprobes in, 0 for all. Other processes that map
// the file can be spared only if children are not measured: the kernel removes the
// breakpoints that a child inherits.
func Processes(t target.Target) []int {
	switch {
	case t.Scope == target.Processes && !t.Children:
		return t.PIDs
	case t.Scope == target.Threads:
		return target.ProcessesOf(t.TIDs)
	}
	return []int{0}
}
