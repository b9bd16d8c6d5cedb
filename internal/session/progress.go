package session

import (
	"fmt"
	"io"
	"time"

	"fulgur/internal/encode/plain"
)

// progressLine is the line on the terminal while sampling.
type progressLine struct {
	wanted bool
	out    io.Writer
	shown  time.Time
}

// show renews the line twice a second, if progress is wanted.
func (p *progressLine) show(m measurement) {
	if !p.wanted || time.Since(p.shown) < 500*time.Millisecond {
		return
	}
	p.shown = time.Now()
	line, err := m.progress()
	if err != nil {
		return // the run itself will meet the error where it matters
	}
	fmt.Fprintf(p.out, "\r%s\x1b[K", line)
}

// clear removes the line.
func (p *progressLine) clear() {
	if !p.shown.IsZero() {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

// progress describes what was sampled so far.
func (r *run) progress() (string, error) {
	stats, err := r.stats()
	if err != nil {
		return "", err
	}
	counts := fmt.Sprintf("%d %s, %d stacks", stats.Samples, r.subject.valueTypes()[0].Type, len(r.store.Bodies))
	if lost := stats.Losses.Uncounted() + r.lost; lost > 0 {
		counts += fmt.Sprintf(", %d lost", lost)
	}
	return r.describe(counts), nil
}

// describe puts counts between what is measured, for how long, and how to end.
func (l *loop) describe(counts string) string {
	elapsed := time.Since(l.start).Truncate(100 * time.Millisecond)
	line := fmt.Sprintf("%s: %.1f s", plain.Terminal(l.target.String()), elapsed.Seconds())
	if l.limit > 0 {
		line += fmt.Sprintf(" of %.1f s", l.limit.Seconds())
	}
	line += ", " + counts
	if l.limit == 0 {
		line += " (Ctrl-C ends)"
	}
	return line
}
