// Package target is what a run measures: the whole system, processes,
// threads, a cgroup, or a command that it launches stopped, so that not one
// of its instructions is missed.
package target

import (
	"fmt"
	"strconv"
	"strings"
)

// Scope is the sort of a target.
type Scope uint8

// The sorts of targets.
const (
	// System is everything that runs on the machine.
	System Scope = iota
	// Processes are all threads, also later ones, of [Target.PIDs].
	Processes
	// Threads are the threads of [Target.TIDs] and no others.
	Threads
	// Cgroup is every task in [Target.CgroupPath] and the groups below it.
	Cgroup
	// Command is a process launched with [Start]. [Target.PIDs] holds its
	// pid once it has been launched.
	Command
)

// Target is what to measure. The zero value is the whole system.
type Target struct {
	Scope Scope
	// PIDs are process (thread group) IDs, for Processes and Command.
	PIDs []int
	// TIDs are thread IDs, for Threads.
	TIDs []int
	// CgroupPath is a directory in a mounted cgroup v2 hierarchy, for
	// Cgroup.
	CgroupPath string
	// CPUs restricts the measurement to these processors, in any scope;
	// empty means all of them.
	CPUs []int
	// Children includes the processes that descend from the PIDs, those
	// that there are and those to come.
	Children bool
}

// String describes the target as the head of an output does: "whole system",
// "pid 42 on CPU 0".
func (t Target) String() string {
	var s string
	switch t.Scope {
	case System:
		s = "whole system"
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
	if len(t.CPUs) > 0 {
		s += " on " + list("CPU", t.CPUs)
	}
	return s
}

// list names ids: "pid 1" or "pids 1, 2".
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
