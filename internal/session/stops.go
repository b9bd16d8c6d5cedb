package session

import (
	"fmt"
	"time"

	"fulgur/internal/capture/perfring"
	"fulgur/internal/capture/stopping"
	"fulgur/internal/message/plain"
)

// stopLines says how a target was measured that was sampled by stops, at what cost, and how much of its CPU time samples
// do not stand for, if amounts are wanted. between is the wanted time between two samples.
func stopLines(u perfring.Unmeasured, s stopping.Stats, amounts bool, between time.Duration) (lines []string) {
	line := "without CAP_BPF: by stops (ptrace), time in the kernel counts at the system call"
	if amounts && u.Unsampled >= shownUnsampled {
		line += fmt.Sprintf("; %.2f s of %.2f s of CPU time was not sampled: of threads that were not found running, or since their last sample", u.Unsampled.Seconds(), u.CPUTime.Seconds())
	}
	lines = append(lines, line)
	if !amounts || s.Stops == 0 {
		return append(lines, refusals(s)...)
	}
	line = fmt.Sprintf("%s, half of them shorter than %s, the longest %s", plain.Count(s.Stops, "stop"), rounded(s.Median), rounded(s.Longest))
	if s.Waiting > 0 {
		line += fmt.Sprintf("; %d came when the thread had begun to wait", s.Waiting)
	}
	if s.Interrupted > 0 {
		line += fmt.Sprintf(", and ended %s with EINTR", plain.Count(s.Interrupted, "system call"))
	}
	lines = append(lines, line)
	const slower = 0.8
	if wanted := s.Lasted.Seconds() / between.Seconds(); float64(s.Rounds) < slower*wanted && wanted > 10 {
		lines = append(lines, fmt.Sprintf("looked at threads %.0f times per second instead of %.0f: more would cost too much, or the machine is busy", float64(s.Rounds)/s.Lasted.Seconds(), 1/between.Seconds()))
	}
	return append(lines, refusals(s)...)
}

// refusals says what was not sampled.
func refusals(s stopping.Stats) (lines []string) {
	for _, r := range s.Refused[:min(len(s.Refused), maxDepartures)] {
		lines = append(lines, fmt.Sprintf("process %d was not sampled: it %s", r.PID, plain.Error(r.Reason)))
	}
	if s.Others > 0 {
		lines = append(lines, plain.Count(s.Others, "child process")+" with other privileges could not be sampled")
	}
	if s.Traced > 0 {
		lines = append(lines, fmt.Sprintf("%s could not be sampled: the thread %s", plain.Count(s.Traced, "time"), plain.Terminal(s.Tracer)))
	}
	return lines
}

func rounded(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}
