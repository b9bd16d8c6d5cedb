package branches

import (
	"fmt"
	"strings"
	"time"

	"fulgur/internal/branches/stepping"
	"fulgur/internal/message/plain"
)

// steppingReport describes the stepping and its cost; see [stepping.Stats].
type steppingReport struct {
	Threads uint64 `json:"threads"`
	Bursts  uint64 `json:"bursts"`
	Steps   uint64 `json:"steps"`
	// Ends counts bursts by the way they ended.
	Ends []cause `json:"burst_ends"`
	// Interrupted is the number of system calls that returned EINTR because of
	// stepping.
	Interrupted uint64 `json:"interrupted_system_calls"`
	// HeldSeconds is the total time that threads were held, LongestHoldSeconds
	// the longest single time. MaxSlowdown is the maximum slowdown of a thread,
	// as a share of its own time, among threads that ran for at least a second.
	HeldSeconds        float64 `json:"held_seconds"`
	LongestHoldSeconds float64 `json:"longest_hold_seconds"`
	MaxSlowdown        float64 `json:"max_slowdown"`
}

func newSteppingReport(s stepping.Stats) *steppingReport {
	r := &steppingReport{
		Threads: s.Threads, Bursts: s.Bursts, Steps: s.Steps, Interrupted: s.Interrupted, Ends: []cause{},
		HeldSeconds: s.Held.Seconds(), LongestHoldSeconds: s.LongestHold.Seconds(), MaxSlowdown: s.MaxSlowdown,
	}
	for _, c := range []cause{
		{"complete", s.Full},
		{"before a system call or other instruction that cannot be stepped", s.Sensitive},
		{"at a signal", s.Signal},
		{"out of time", s.Deadline},
		{"in a long string instruction", s.Repeated},
		{"because the kernel moved the thread", s.Moved},
	} {
		r.Ends = addCause(r.Ends, c.Cause, c.Count)
	}
	return r
}

// text writes the description of the stepping.
func (r *steppingReport) text(b *strings.Builder) {
	if r.Bursts == 0 {
		fmt.Fprintf(b, "  stepped 0 of %s\n", plain.Count(r.Threads, "thread"))
		return
	}
	fmt.Fprintf(b, "  stepped %s through %s, in %s", plain.Count(r.Threads, "thread"), plain.Count(r.Steps, "instruction"), plain.Count(r.Bursts, "burst"))
	longest := time.Duration(r.LongestHoldSeconds * float64(time.Second))
	fmt.Fprintf(b, " of at most %v, including waits for a CPU", longest.Round(100*time.Microsecond))
	if r.MaxSlowdown > 0 {
		fmt.Fprintf(b, "; maximum slowdown of a thread: %.1f %%", 100*r.MaxSlowdown)
	}
	b.WriteByte('\n')
	for i, end := range r.Ends {
		if i == 0 {
			b.WriteString("  bursts ended: ")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%d %s", end.Count, end.Cause)
	}
	if len(r.Ends) > 0 {
		b.WriteByte('\n')
	}
	if r.Interrupted > 0 {
		fmt.Fprintf(b, "  %s of the target returned EINTR because of stepping\n", plain.Count(r.Interrupted, "system call"))
	}
}
