package branches

import (
	"context"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"fulgur/internal/session"
)

// collectFrequency is the rate of branch samples of [Collect], in Hz on each CPU. A profile
// that grows all day does not need the highest rate that kernels allow.
const collectFrequency = 997

// Collected describes a profile of [Collect].
type Collected struct {
	// Name and BuildID identify the binary. Profile is the path of its profile, empty if
	// nothing was sampled.
	Name, BuildID, Profile string
	// Samples is the number of samples.
	Samples uint64
	// LongestStall is the longest time that counting stalled a thread.
	LongestStall time.Duration
}

// Collect measures as [Measure] does, for a program that runs all the time: it records
// branches with the processor, or counts jumps, but never steps, and prints nothing. o
// needs a target, a duration, and an output that is a file.
func Collect(ctx context.Context, o Options) (Collected, error) {
	o.Quiet, o.Stdout, o.Stderr, o.unattended = true, io.Discard, io.Discard, true
	// A measurement sets this for the whole process, but other measurements continue.
	before := debug.SetGCPercent(-1) // there is no way to only read it
	debug.SetGCPercent(before)
	defer debug.SetGCPercent(before)
	j := &job{options: &o}
	_, err := session.Driver{Target: &o.Target, Stderr: io.Discard, Quiet: true}.Run(ctx, j)
	r := j.report
	if err != nil || r == nil || len(r.Binaries) == 0 {
		return Collected{}, err
	}
	b := r.Binaries[0]
	c := Collected{Name: b.Binary, BuildID: b.BuildID, Samples: r.Samples}
	for _, warning := range append(r.Warnings, b.Warnings...) {
		slog.Debug("branch profile", "binary", b.Binary, "warning", warning)
	}
	if b.Branches > 0 {
		c.Profile = b.Profile
	}
	if r.Counting != nil {
		c.LongestStall = time.Duration(r.Counting.LongestStallSeconds * float64(time.Second))
	}
	return c, nil
}
