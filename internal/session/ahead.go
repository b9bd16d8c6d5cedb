package session

import (
	"context"
	"time"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/target"
)

const (
	// aheadAfter is the time after the start of sampling before the first frames are named.
	// Shorter runs name all frames afterwards.
	aheadAfter = time.Second
	// aheadRest is the minimum rest after naming, as a multiple of the time that naming took.
	aheadRest = 4
	// In the last 1/aheadShare of a run of known length, frames are named for the last time.
	aheadShare = 10
)

// ahead decides when to name frames while sampling goes on, so that little is left to do
// afterwards. Each time, symbol tables are read again, so it waits until there are half as many
// new frames as old ones.
type ahead struct {
	frames int       // number of frames of the store that were named
	rest   time.Time // no naming before this time
	last   bool      // the last naming has begun
}

// due reports whether to name new frames now, when the store has n. The run lasts from start to end,
// which is zero if it is unknown.
func (a *ahead) due(n int, now, start, end time.Time) bool {
	if a.last || n == a.frames || now.Before(a.rest) || now.Sub(start) < aheadAfter {
		return false
	}
	if !end.IsZero() && end.Sub(now) <= end.Sub(start)/aheadShare {
		a.last = true
		return true
	}
	return n-a.frames > a.frames/2
}

// nameAhead names the new frames of a whole run, if it is time. Their names and symbol tables are
// cached, and so are the packages of files without symbols.
func (w *windows) nameAhead(now time.Time) {
	var end time.Time
	if w.run.loop.Limit > 0 {
		end = w.run.loop.Start.Add(w.run.loop.Limit)
	}
	// The writer is idle when waiting is 0.
	if w.every > 0 || w.run.options.NoSymbols || w.measuresItself() || w.run.queue.waiting.Load() > 0 || !w.ahead.due(len(w.run.store.Frames), now, w.run.loop.Start, end) {
		return
	}
	names := naming.New(w.run.store.Lasting(w.ahead.frames), w.run.finder, w.run.options.symbolize())
	names.Cache, names.Ahead = w.known, w.run.sampled
	w.ahead.frames = len(w.run.store.Frames)
	w.run.queue.put(func(ctx context.Context) error {
		began := time.Now()
		w.symbolize(ctx, names)
		names.FindPackages()
		w.ahead.rest = time.Now().Add(aheadRest * time.Since(began))
		return w.known.Trim()
	}, 1)
}

// measuresItself reports whether fulgur's own work would falsify the result: its disk requests, page
// faults and system calls could outweigh those of other programs. CPU samples only show the share of the
// CPUs that fulgur takes.
func (w *windows) measuresItself() bool {
	if scope := w.run.options.Target.Scope; scope != target.System && scope != target.Cgroup {
		return false
	}
	return len(w.run.sources) != 1 || w.asked == 0
}
