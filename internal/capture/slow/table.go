package slow

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/latency"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/message/plain"
)

// table returns lines with the slowest intervals; nil if there are none.
func table(rows []latency.SlowInterval) []string {
	if len(rows) == 0 {
		return nil
	}
	zero := time.Now().Add(-time.Duration(monotonic.Now())) // of CLOCK_MONOTONIC
	lines := []string{fmt.Sprintf("%-15s  %10s  %10s  %10s  %10s  %s", "slowest began", "length", "running", "runnable", "waiting", "thread")}
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("%-15s  %10s  %10s  %10s  %10s  %s",
			zero.Add(time.Duration(r.Since)).Format("15:04:05.000000"), milliseconds(r.Time), milliseconds(r.Running), milliseconds(r.Waiting),
			milliseconds(r.Time-min(r.Running+r.Waiting, r.Time)), thread(r)))
	}
	return lines
}

// milliseconds returns ns as milliseconds.
func milliseconds(ns uint64) string { return fmt.Sprintf("%.3f ms", float64(ns)/1e6) }

// thread names the thread of an interval.
func thread(r latency.SlowInterval) string {
	name := plain.Terminal(strings.TrimSpace(unix.ByteSliceToString(r.Comm[:])))
	return fmt.Sprintf("%s-%d/%d", name, r.Pid, r.Tid)
}
