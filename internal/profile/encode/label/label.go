// Package label names tasks, CPUs and kinds of frames as the FlameGraph scripts do.
package label

import (
	"fmt"

	"fulgur/internal/profile"
)

// Task returns the name of t: its comm, or for a single thread "comm-pid/tid", as in
// `stackcollapse-perf.pl --tid`, with "?" for an unknown process. The comm is untrusted.
func Task(t profile.Task) string {
	switch {
	case t.TID == 0:
		return t.Comm
	case t.PID == 0:
		return fmt.Sprintf("%s-?/%d", t.Comm, t.TID)
	}
	return fmt.Sprintf("%s-%d/%d", t.Comm, t.PID, t.TID)
}

// CPU returns the name of the root frame of a CPU, "[CPU 3]". ok is false for -1, which
// means all CPUs.
func CPU(cpu int) (name string, ok bool) {
	if cpu < 0 {
		return "", false
	}
	return fmt.Sprintf("[CPU %d]", cpu), true
}

// Groups returns the names of the groups of p's tasks, by task, each "" without groups;
// see [profile.Meta]. They are untrusted.
func Groups(p *profile.Profile) []string {
	groups := make([]string, len(p.Tasks))
	for t := range p.Tasks {
		groups[t] = p.Group(profile.TaskID(t))
	}
	return groups
}

// Suffix returns the suffix by which flamegraph.pl colors a frame: "_[k]" for kernel
// frames, inlined or not, as in bcc's `profile -a`, "_[i]" for inlined user frames, as in
// stackcollapse-perf.pl, and none for others.
func Suffix(f profile.Frame) string {
	switch {
	case f.Kind == profile.KindKernel:
		return "_[k]"
	case f.Inlined:
		return "_[i]"
	}
	return ""
}
