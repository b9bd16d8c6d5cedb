package session

import (
	"context"
	"errors"
	"time"

	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/message/usage"
	"fulgur/internal/symbols/debugfile"
)

// Run measures a subject, until the duration is over, ctx ends or the target
// exits, and writes the profile of each window to a sink, while sampling goes
// on. Without windows it writes the profile of the whole run, with times if the
// output's format and the subject support them. A window ends early when its
// distinct stacks reach a limit. A wait that spans several windows counts in
// each of them, for its share.
//
// Run fills in defaults in o. The exit code is o.Command's if it was launched and
// ran, else 0, or 1 with an error.
func Run(ctx context.Context, o *Options, what source.Subject, to Sink) (exitCode int, err error) {
	if o.Every > 0 {
		what = untimed{what}
	}
	return drive(ctx, o, what, to, func(r *run) { newWindows(r, to) })
}

// Measure writes the profile of a whole run to the file that o names; see [Run].
func Measure(ctx context.Context, o Options, what source.Subject) (exitCode int, err error) {
	to, err := newProfileFile(&o)
	if err != nil {
		return 1, err
	}
	return Run(ctx, &o, what, to)
}

// job is the [Job] of a session.
type job struct {
	options *Options
	subject source.Subject
	finder  *debugfile.Finder
	output  destination
	connect func(*run) // gives an attached run its pipeline
}

// destination is what pipelines write to.
type destination interface {
	Open(context.Context) error
	Close() error
}

// pipeline takes the samples of a run to their destination: it passes them to the run's queue,
// whose writer names and writes them. The run calls the methods in the order of this list.
type pipeline interface {
	// begin is called right before sampling is enabled.
	begin() error
	// polled is called after each poll.
	polled(now time.Time) error
	// finish passes on the rest, after sampling.
	finish() error
	// conclude prints the closing summary, after everything has been written.
	conclude() error
	// close is called whether or not the others fail.
	close() error
}

// drive measures what for a destination, by the pipeline that connect gives the run.
func drive(ctx context.Context, o *Options, what source.Subject, to destination, connect func(*run)) (exitCode int, err error) {
	return Driver{o.Command, &o.Target, o.Stderr, o.Quiet}.Run(ctx, &job{options: o, subject: what, output: to, connect: connect})
}

// Prepare implements [Job].
func (j *job) Prepare(ctx context.Context) (err error) {
	if err := j.options.complete(j.subject); err != nil {
		return err
	}
	if j.finder, err = debugfile.New(debugfile.Config{Root: j.options.Symfs}); err != nil {
		return usage.Errorf("%v", err)
	}
	if err := j.options.chooseVia(j.subject); err != nil {
		return err
	}
	if err := CheckTarget(&j.options.Target); err != nil {
		return err
	}
	if err := j.subject.Choose(); err != nil {
		return err
	}
	return j.output.Open(ctx)
}

// Measure implements [Job].
func (j *job) Measure(ctx context.Context, launched *target.Launched) (err error) {
	r, err := newRun(j.subject, j.options, j.finder)
	if err != nil {
		return doctor.Explain(err, "measuring "+j.options.Target.String())
	}
	defer func() { err = errors.Join(err, r.close()) }()
	j.connect(r)
	if j.options.Ready != nil {
		j.options.Ready()
	}
	if err := r.measure(ctx, launched); err != nil {
		return err
	}
	return r.pipeline.conclude()
}

// Close implements [Job].
func (j *job) Close() error { return j.output.Close() }

// measure samples until the measurement ends, and writes everything. The user's first interrupt
// ends sampling. Each later one ends what goes on then: the lookup of names, or a wait for the
// reader of the output. The second one during a wait for a file system kills fulgur.
func (r *run) measure(ctx context.Context, launched *target.Launched) error {
	// Symbolization goes on until everything is written, unless the user
	// interrupts again.
	names, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	written := make(chan struct{})
	r.sampled = make(chan struct{})
	go func() {
		defer close(written)
		r.queue.write(names)
	}()
	err := r.sample(ctx, launched)
	close(r.sampled)
	if err == nil {
		err = r.pipeline.finish()
	}
	r.queue.end()
	again, stop := r.namingContext(ctx)
	defer stop()
	defer context.AfterFunc(again, cancel)()
	<-written
	return errors.Join(err, r.queue.failed())
}
