package session

import (
	"fmt"
	"time"
)

// progress is the line on the terminal while sampling.
type progress struct {
	run   *run
	shown time.Time
}

func newProgress(r *run) *progress { return &progress{run: r} }

// show renews the line twice a second, if progress is wanted.
func (p *progress) show() {
	r := p.run
	if !r.options.Progress || time.Since(p.shown) < 500*time.Millisecond {
		return
	}
	p.shown = time.Now()
	stats, err := r.source.Stats()
	if err != nil {
		return // the run itself will meet the error where it matters
	}
	elapsed := time.Since(r.start).Truncate(100 * time.Millisecond)
	line := fmt.Sprintf("%s: %.1f s", r.options.Target, elapsed.Seconds())
	if d := r.options.Duration; d > 0 {
		line += fmt.Sprintf(" of %.1f s", d.Seconds())
	}
	line += fmt.Sprintf(", %d samples, %d stacks", stats.Samples, len(r.store.Bodies))
	if lost := stats.Losses.Samples + r.lost; lost > 0 {
		line += fmt.Sprintf(", %d lost", lost)
	}
	if r.options.Duration == 0 {
		line += " (Ctrl-C ends)"
	}
	fmt.Fprintf(r.options.Stderr, "\r%s\x1b[K", line)
}

// clear removes the line.
func (p *progress) clear() {
	if !p.shown.IsZero() {
		fmt.Fprint(p.run.options.Stderr, "\r\x1b[K")
	}
}
