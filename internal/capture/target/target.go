// Package target defines what a run measures: the whole system, processes, threads,
// a cgroup, or a command. It launches commands stopped, so that not one of their
// instructions is missed.
package target

import (
	"fmt"
	"strconv"
	"strings"

	"fulgur/internal/bpf"
	"fulgur/internal/profile"
)

// Scope is the kind of a target.
type Scope uint8

// Kinds of targets.
const (
	// System is everything that runs on the machine.
	System Scope = iota
	// Processes is all threads of [Target.PIDs], including later ones.
	Processes
	// Threads is the threads of [Target.TIDs] only.
	Threads
	// Cgroup is every task in [Target.CgroupPath] and its descendants, or in the
	// container, unit or pod [Target.Name].
	Cgroup
	// Command is a process launched by [Start]. [Target.PIDs] holds its PID
	// after the launch.
	Command
)

// Target selects processes, threads or a cgroup. The zero value is the whole system.
type Target struct {
	Scope Scope
	// PIDs are process (thread group) IDs, for Processes and Command.
	PIDs []int
	// TIDs are thread IDs, for Threads.
	TIDs []int
	// CgroupPath is a directory in a mounted cgroup v2 hierarchy, for
	// Cgroup.
	CgroupPath string
	// Named, if not GroupNone, is the kind of the target called Name: a container, unit or
	// pod. [Target.Resolve] finds its cgroup or, on a machine where it has none of version
	// 2, its processes.
	Named profile.Grouping
	Name  string
	// CPUs restricts the measurement to these CPUs, in any scope; empty means
	// all CPUs.
	CPUs []int
	// Children includes existing and future descendants of the PIDs.
	Children bool
}

// String describes the target for the head of an output, such as "whole system" or
// "pid 42 on CPU 0".
func (t Target) String() string {
	var s string
	switch t.Scope {
	case System:
		s = "whole system"
		if bpf.InPIDNamespace() {
			s = "whole PID namespace" // the processes outside are not measured
		}
	case Processes:
		s = list("pid", t.PIDs)
	case Threads:
		s = list("thread", t.TIDs)
	case Cgroup:
		s = "cgroup " + t.CgroupPath
	case Command:
		s = list("command, pid", t.PIDs)
	}
	if t.Children {
		s += " with children"
	}
	if t.Named != profile.GroupNone {
		s = t.Named.String() + " " + t.Name
	}
	if len(t.CPUs) > 0 {
		s += " on " + list("CPU", t.CPUs)
	}
	return s
}

// list formats ids as "pid 1" or "pids 1, 2".
func list(noun string, ids []int) string {
	if len(ids) != 1 {
		noun += "s"
	}
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = strconv.Itoa(id)
	}
	return fmt.Sprintf("%s %s", noun, strings.Join(text, ", "))
}
