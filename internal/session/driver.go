package session

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"fulgur/internal/capture/loop"
	"fulgur/internal/capture/target"
)

// Job is a measurement from its options to its result. A [Driver] calls the
// methods in this order.
type Job interface {
	// Prepare checks everything that can be checked before a command is
	// launched, and opens the output.
	Prepare(context.Context) error
	// Measure measures and writes the result. launched is the command, nil if
	// there is none.
	Measure(ctx context.Context, launched *target.Launched) error
	// Close releases everything and discards an incomplete output. It is
	// called whether or not the others fail.
	Close() error
}

// Driver runs jobs.
type Driver struct {
	// Command, if not empty, is launched between Prepare and Measure, and
	// becomes the Target.
	Command []string
	Target  *target.Target
	// Stderr receives messages about a command that outlives the
	// measurement; Quiet suppresses them.
	Stderr io.Writer
	Quiet  bool
}

// Run runs a job. The exit code is the command's if it ran, 0 without a
// command, or 1 with an error.
func (d Driver) Run(ctx context.Context, j Job) (exitCode int, err error) {
	debug.SetGCPercent(loop.GCPercentAtStart)
	limitProcessors()
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := j.Prepare(ctx); err != nil {
		return 1, err
	}
	launched, err := target.Launch(d.Command, d.Target)
	if err != nil {
		return 1, err
	}
	err = j.Measure(ctx, launched)
	if launched != nil {
		return loop.Await(ctx, launched, err, d.Stderr, d.Quiet)
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// maxProcessors is the number of CPUs that fulgur uses at the same time while it measures.
const maxProcessors = 16

// limitProcessors sets GOMAXPROCS to at most maxProcessors, unless the environment variable of that name
// is set. The other CPUs of a large machine remain for the programs that are measured. Without the limit,
// fulgur would make as many unwind tables, and read as many files with names, as there are CPUs, each
// with memory of its own. Go would collect garbage on a quarter of the CPUs, and keep free memory for
// each CPU that ran Go code.
func limitProcessors() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) > maxProcessors {
		runtime.GOMAXPROCS(maxProcessors)
	}
}
