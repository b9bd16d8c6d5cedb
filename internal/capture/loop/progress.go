package loop

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"fulgur/internal/message/plain"
)

// ProgressLine is the progress line on the terminal.
type ProgressLine struct {
	// Wanted enables the line, on Out.
	Wanted bool
	Out    io.Writer

	shown time.Time
}

// progressEvery returns the time between two updates of the line: half a second, longer on machines
// with many CPUs. To count skipped samples, the line reads an event of each CPU, which interrupts the
// CPU.
func progressEvery(cpus int) time.Duration {
	return max(500*time.Millisecond, time.Duration(cpus)*20*time.Millisecond)
}

// show updates the line, if it is wanted and due.
func (p *ProgressLine) show(m Measurement) {
	if !p.Wanted || time.Since(p.shown) < progressEvery(runtime.NumCPU()) {
		return
	}
	p.shown = time.Now()
	line, err := m.Progress()
	if err != nil {
		return // the run reports the error
	}
	// The terminal cuts the line, since a line that wraps cannot be overwritten.
	fmt.Fprintf(p.Out, "\r\x1b[K\x1b[?7l%s\x1b[?7h", line)
}

// clear removes the line.
func (p *ProgressLine) clear() {
	if !p.shown.IsZero() {
		fmt.Fprint(p.Out, "\r\x1b[K")
	}
}

// Describe returns the progress line: the time, the counts, how to end, and the target, which
// comes last because it can be long.
func (l *Loop) Describe(counts string) string {
	elapsed := time.Since(l.Start).Truncate(100 * time.Millisecond)
	line := fmt.Sprintf("%.1f s", elapsed.Seconds())
	if l.Limit > 0 {
		line += fmt.Sprintf(" of %.1f s", l.Limit.Seconds())
	}
	line += ", " + counts
	if l.Limit == 0 {
		line += ", Ctrl-C to stop"
	}
	return line + " (" + plain.Terminal(l.Target.String()) + ")"
}
