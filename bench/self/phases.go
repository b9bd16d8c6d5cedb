package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"time"
)

// phase is a part of fulgur's run.
type phase int

const (
	start phase = iota
	sampling
	end
	phaseCount
)

func (p phase) String() string { return [...]string{"start", "sampling", "end"}[p] }

// phases holds the time at which each phase began, and the time of the exit.
type phases [phaseCount + 1]time.Time

// of returns the phase that contains t.
func (p phases) of(t time.Time) phase {
	for at := end; at > start; at-- {
		if !t.Before(p[at]) {
			return at
		}
	}
	return start
}

// lasted returns the duration of a phase.
func (p phases) lasted(of phase) time.Duration { return p[of+1].Sub(p[of]) }

// boundaries are the messages of fulgur's log at the beginning of each phase, and at the exit.
var boundaries = [phaseCount + 1]string{"start", "attached", "sampling ended", "end"}

var logLine = regexp.MustCompile(`^time=(\S+) level=\S+ msg=(?:"([^"]*)"|(\S+))`)

// readPhases reads the phases from fulgur's log. If a message occurs several times, the first one
// counts.
func readPhases(log string) (p phases, err error) {
	f, err := os.Open(log)
	if err != nil {
		return p, fmt.Errorf("read fulgur's log: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := logLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		for i, message := range boundaries {
			if m[2]+m[3] != message || !p[i].IsZero() {
				continue
			}
			if p[i], err = time.Parse(time.RFC3339Nano, m[1]); err != nil {
				return p, fmt.Errorf("read fulgur's log: %w", err)
			}
		}
	}
	for i, t := range p {
		if t.IsZero() {
			return p, fmt.Errorf("fulgur's log has no message %q", boundaries[i])
		}
	}
	return p, lines.Err()
}
