package recording

import (
	"cmp"
	"fmt"
	"strings"

	"fulgur/internal/profile"
)

// noFile is the note on page faults without a file.
const noFile = "memory without a file"

// stacks finds the stacks of the samples of a recording that was read from a file. They end in a note: the
// reason of a wait, the file of a page fault, what a request asks for. The stacks of events are without.
type stacks struct {
	line  *profile.Timeline
	notes map[note]profile.StackID
}

// note is a note on a stack.
type note struct {
	on   profile.StackID
	text string
}

// stacksOf returns the stacks of a recording.
func stacksOf(line *profile.Timeline) stacks {
	p := line.Profile
	s := stacks{line, map[note]profile.StackID{}}
	for id := 1; id < len(p.Stacks); id++ {
		at := p.Stacks[id]
		if p.Frames[at.Frame].Kind == profile.KindMarker {
			text := strings.TrimPrefix(strings.Trim(p.FrameName(at.Frame), "[]"), "off-CPU: ")
			s.notes[note{at.Parent, text}] = profile.StackID(id)
		}
	}
	return s
}

// with returns a stack with the first of some notes that it has in the profile, or else without.
func (s stacks) with(stack profile.StackID, notes ...string) profile.StackID {
	for _, text := range notes {
		if id, ok := s.notes[note{stack, text}]; ok && text != "" {
			return id
		}
	}
	return stack
}

// wait returns the stack of a period off the CPU.
func (s stacks) wait(e profile.OffCPU) profile.StackID {
	if e.State == profile.StateRunnable {
		return s.with(e.Stack, "preempted")
	}
	state := map[profile.TaskState]string{
		profile.StateStopped: "stopped", profile.StateTraced: "traced", profile.StateUninterruptible: "uninterruptible wait",
	}[e.State]
	return s.with(e.Stack, s.line.Reason(e), cmp.Or(state, "waiting"), "off-cpu")
}

// request returns the stack of a request to a block device.
func (s stacks) request(e profile.BlockIO) profile.StackID {
	return s.with(s.with(e.Stack, e.File), fmt.Sprintf("%s %v%v", e.Device, e.Op, e.Flags))
}

// fault returns the stack of a page fault.
func (s stacks) fault(e profile.Fault) profile.StackID {
	return s.with(e.Stack, cmp.Or(e.File, noFile))
}
