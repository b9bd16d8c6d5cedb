// Package roots names the frames that outputs put under the stacks of a task.
package roots

import (
	"fmt"

	"fulgur/internal/profile"
)

// Task returns the name of t: its comm, or where threads were told apart
// "comm-pid/tid", as `stackcollapse-perf.pl --tid` has it, with "?" for a
// process that is not known. The comm is untrusted text.
func Task(t profile.Task) string {
	switch {
	case t.TID == 0:
		return t.Comm
	case t.PID == 0:
		return fmt.Sprintf("%s-?/%d", t.Comm, t.TID)
	}
	return fmt.Sprintf("%s-%d/%d", t.Comm, t.PID, t.TID)
}

// CPU returns the name of the frame under all that ran on a CPU, "[CPU 3]", and
// whether there is one: there is not where CPUs were not told apart, -1.
func CPU(cpu int) (name string, ok bool) {
	if cpu < 0 {
		return "", false
	}
	return fmt.Sprintf("[CPU %d]", cpu), true
}
