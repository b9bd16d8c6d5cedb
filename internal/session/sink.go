package session

import (
	"context"
	"errors"
	"time"

	"fulgur/internal/export/otlpclient"
	"fulgur/internal/profile"
	"fulgur/internal/profile/output"
)

// Window is the profile of a part of a run, or of the whole run. Windows follow
// each other without gaps.
type Window struct {
	// Number is the window's number, from 1.
	Number  int
	Profile *profile.Profile
	// Timeline has the times of events, nil if they were not recorded.
	Timeline *profile.Timeline
	// Value is the index of the value to output.
	Value int
	// Excluded is what rules excluded.
	Excluded Excluded
}

// Excluded counts samples of processes that rules exclude. Waits are among them only if their processes
// were new to the rules when they began: others are not followed.
type Excluded struct {
	Samples uint64
	// CPU is the CPU time that the samples stand for, if they are samples of CPU time.
	CPU time.Duration
	// Thinned is the number of samples of processes with lower rates that other samples stand for.
	Thinned uint64
}

// Plus returns the sum of e and o.
func (e Excluded) Plus(o Excluded) Excluded {
	return Excluded{e.Samples + o.Samples, e.CPU + o.CPU, e.Thinned + o.Thinned}
}

// Minus returns what was excluded after o.
func (e Excluded) Minus(o Excluded) Excluded {
	return Excluded{e.Samples - o.Samples, e.CPU - o.CPU, e.Thinned - o.Thinned}
}

// Sink receives the profiles of a session: a file, a page, a terminal.
type Sink interface {
	// Open is called before a command is launched, so that an output that
	// is not writable fails at once. Once ctx is done, it no longer waits for
	// a reader.
	Open(ctx context.Context) error
	// Write writes a window. If it takes longer than a window lasts, the
	// next window is longer. An error ends the measurement. Once ctx is done,
	// it no longer waits for a reader or a back end, but writes files
	// nonetheless: the user has interrupted it, after the measurement.
	Write(ctx context.Context, w Window) error
	// Close releases everything and discards incomplete output. It is
	// called whether or not Open fails.
	Close() error
}

// SinkFunc is a [Sink] that only writes.
type SinkFunc func(context.Context, Window) error

// Open does nothing.
func (SinkFunc) Open(context.Context) error { return nil }

// Write calls f.
func (f SinkFunc) Write(ctx context.Context, w Window) error { return f(ctx, w) }

// Close does nothing.
func (SinkFunc) Close() error { return nil }

// outputFile is the file, or stream, that options name.
type outputFile struct {
	options *Options
	output.Output
	giveUp context.CancelFunc // ends its waits
}

// Open creates the file, which appears, or is sent, when it is committed.
func (f *outputFile) Open(ctx context.Context) (err error) {
	f.Output, f.giveUp, err = output.Outlive(ctx, func(waits context.Context) (output.Output, error) {
		return otlpclient.Create(waits, f.options.Output, f.options.Stdout, f.options.warn)
	})
	return err
}

// until runs write, which writes the file. Once ctx is done, it no longer waits for a reader or
// a back end.
func (f *outputFile) until(ctx context.Context, write func() error) error {
	defer context.AfterFunc(ctx, f.giveUp)()
	return write()
}

// Close discards the file unless it was committed.
func (f *outputFile) Close() error {
	if f.Output == nil {
		return nil
	}
	return f.Abort()
}

// profileFile is a [Sink] that writes the profile of a whole run.
type profileFile struct {
	outputFile
	format output.Format
}

// newProfileFile returns a [usage.Err] if the file's format does not support o.
func newProfileFile(o *Options) (*profileFile, error) {
	f, err := o.format()
	return &profileFile{outputFile{options: o}, f}, err
}

// Write writes the profile, with times if they were recorded.
func (f *profileFile) Write(ctx context.Context, w Window) error {
	return f.until(ctx, func() error {
		if err := f.format.Write(f.Output, w.Profile, w.Timeline, f.options.output(), w.Value); err != nil {
			return err
		}
		return f.Commit()
	})
}

// Sinks is a [Sink] that writes each window to several.
type Sinks []Sink

// Open opens all.
func (s Sinks) Open(ctx context.Context) error {
	return s.each(func(to Sink) error { return to.Open(ctx) })
}

// Write writes to one after the other, until an error.
func (s Sinks) Write(ctx context.Context, w Window) error {
	return s.each(func(to Sink) error { return to.Write(ctx, w) })
}

// Close closes all.
func (s Sinks) Close() error {
	var errs []error
	for _, to := range s {
		errs = append(errs, to.Close())
	}
	return errors.Join(errs...)
}

func (s Sinks) each(f func(Sink) error) error {
	for _, to := range s {
		if err := f(to); err != nil {
			return err
		}
	}
	return nil
}
