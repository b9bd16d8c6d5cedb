package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/samples"
	"fulgur/internal/profile/encode/text"
	"fulgur/internal/profile/output"
	"fulgur/internal/symbols/debugfile"
)

const (
	// maxWaiting is how many samples wait to be written before others are
	// dropped: some seconds at 1000 a second.
	maxWaiting = 1 << 13
	// maxStreamed is how many stacks are remembered before all are forgotten
	// and begun anew with those that still come.
	maxStreamed = 1 << 16
)

// StreamFormats are the names of the formats of [Stream], for help texts.
const StreamFormats = "text, jsonl"

// Stream samples what runs on the processors for as long as [Profile] does, and
// writes every sample with its stack as it is taken. Where names cannot be found or
// be written as fast as samples come, some are dropped, and the output says how
// many. The exit code is that of [Profile].
func Stream(ctx context.Context, o ProfileOptions) (exitCode int, err error) {
	if o.Wall {
		return 2, usage.Errorf("--stream and --wall cannot be combined: use --interval or --serve with --wall, or fulgur record for each single wait")
	}
	write, err := streamFormat(&o.Options)
	if err != nil {
		return 2, err
	}
	what := streamed{untimed{profiled(&o)}}
	if code, err := complete(what, &o.Options); err != nil {
		return code, err
	}
	finder, code, err := prepare(what, &o.Options)
	if err != nil {
		return code, err
	}
	out, err := output.Create(o.Output, o.Stdout)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()
	launched, err := target.Launch(o.Command, &o.Target)
	if err != nil {
		return 1, err
	}
	err = takeStream(ctx, what, &o.Options, finder, launched, func(b samples.Batch) error { return write(out, b) })
	return exitCodeOf(ctx, launched, errors.Join(err, out.Commit()), &o.Options)
}

// streamFormat returns what writes samples in the format that is asked for.
func streamFormat(o *Options) (func(io.Writer, samples.Batch) error, error) {
	switch o.Format {
	case "", "text":
		return samples.WriteText, nil
	case "jsonl":
		return samples.WriteJSON, nil
	}
	return nil, usage.Errorf("--stream does not support format %q: choose %s", o.Format, StreamFormats)
}

// streamed is the subject of samples on the CPU that are written as they are taken.
type streamed struct{ untimed }

// Load implements [source.Subject].
func (m streamed) Load(common probe.Options) ([]source.Source, error) {
	common.Timeline = true
	return m.Subject.Load(common)
}

// takeStream measures and writes.
func takeStream(ctx context.Context, what source.Subject, o *Options, finder *debugfile.Finder, launched *target.Launched, write func(samples.Batch) error) (err error) {
	r, err := attach(what, o, finder)
	if err != nil {
		return doctor.Explain(err, "profile "+o.Target.String())
	}
	s := &streaming{
		run: r, write: write, known: naming.NewSymbolCache(), warnings: warnOnce{options: o},
		batch: newBatch(), batches: make(chan *batch, maxWaiting), failed: make(chan error, 1),
		sinceBoot: time.Now().Add(-time.Duration(monotonic.Now())),
	}
	r.event = s.take
	defer func() { err = errors.Join(err, s.known.Close(), r.close()) }()
	if err := s.measureAndWrite(ctx, launched); err != nil {
		return err
	}
	return s.conclude()
}

// streaming is a run whose samples are written one by one.
type streaming struct {
	*run
	write    func(samples.Batch) error
	known    *naming.SymbolCache
	warnings warnOnce
	// sinceBoot is the wall-clock time at which the samples' clock was 0.
	sinceBoot time.Time

	batch *batch // what the poll that is under way has met
	// batches are on their way to the one goroutine that names and writes them.
	batches chan *batch
	waiting atomic.Int64 // samples in them
	failed  chan error

	// What became of samples: written is the writer's.
	written, dropped, lost uint64
}

// batch is the samples of one poll with a store of their own, so that they can be
// named while the next ones come.
type batch struct {
	store    *stacks.Store
	events   []streamEvent
	perfMaps map[*process.PerfMap]*process.PerfMap // see [naming.PerfMapsOf]
	dropped  uint64                                // samples between the batch before and this one
}

// streamEvent is a sample whose stack is a trace of the batch, or not known.
type streamEvent struct {
	oncpu.Event
	trace stacks.TraceID
	lost  bool
}

func newBatch() *batch { return &batch{store: stacks.NewStore(nil)} }

// take takes the record of a sample.
func (s *streaming) take(_ int, record []byte) error {
	event, err := oncpu.ParseEvent(record)
	if err != nil {
		return err
	}
	taken := streamEvent{Event: *event}
	if id, ok := s.store.Find(event.Id); ok {
		taken.trace = s.batch.store.Adopt(s.store, id)
	} else {
		taken.lost = true
		s.lost++
	}
	s.batch.events = append(s.batch.events, taken)
	return nil
}

// Poll takes what the kernel side has, and hands it to the writer.
func (s *streaming) Poll() (busy bool, err error) {
	busy, err = s.run.Poll()
	select {
	case failed := <-s.failed:
		return busy, errors.Join(err, failed)
	default:
	}
	if err != nil {
		return busy, err
	}
	s.hand()
	return busy, s.forget()
}

// hand gives the writer what the poll has met, unless it has too much already.
func (s *streaming) hand() {
	n := len(s.batch.events)
	if n == 0 {
		return
	}
	full := s.batch
	s.batch = newBatch()
	if s.waiting.Load()+int64(n) > maxWaiting {
		s.dropped += uint64(n)
		s.batch.dropped = full.dropped + uint64(n)
		return
	}
	s.waiting.Add(int64(n))
	full.perfMaps = naming.PerfMapsOf(full.store)
	s.batches <- full
}

// forget drops the stacks that were met so far if there are many: those that are
// met again come once more.
func (s *streaming) forget() error {
	if s.store.Names() < maxStreamed {
		return nil
	}
	s.store = s.store.Next()
	s.Processes.NextPeriod()
	return s.each(source.Source.Renew)
}

// measureAndWrite samples until something ends it, and writes what is left then.
func (s *streaming) measureAndWrite(ctx context.Context, launched *target.Launched) error {
	// Names are looked for until all is written, unless the user asks a second
	// time.
	naming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	written := make(chan struct{})
	go func() {
		defer close(written)
		s.writeAll(naming)
	}()
	err := s.sample(ctx, s, launched)
	if err == nil {
		_, err = s.Poll()
	}
	close(s.batches)
	again, stop := s.naming(ctx)
	defer stop()
	defer context.AfterFunc(again, cancel)()
	<-written
	select {
	case failed := <-s.failed:
		return errors.Join(err, failed)
	default:
		return err
	}
}

// writeAll names and writes batches until there are no more.
func (s *streaming) writeAll(ctx context.Context) {
	for b := range s.batches {
		names := naming.New(b.store, s.finder, s.options.symbolize())
		names.Cache, names.Snapshots, names.Later = s.known, b.perfMaps, s.options.NoSymbols
		names.Symbolize(ctx)
		s.warnings.warn(names.Warnings())
		if err := errors.Join(s.write(s.name(b, names)), s.known.Trim()); err != nil {
			s.failed <- err
			for range s.batches { // let nobody wait
			}
			return
		}
		s.written += uint64(len(b.events))
		s.waiting.Add(-int64(len(b.events)))
	}
}

// name returns a batch with names.
func (s *streaming) name(b *batch, names *naming.Names) samples.Batch {
	builder := profile.NewBuilder()
	placed := naming.NewStackBuilder(builder, b.store, names)
	made := samples.Batch{Dropped: b.dropped}
	for _, e := range b.events {
		task := profile.Task{PID: int(e.Pid), TID: int(e.Tid), Comm: "[unknown]"}
		sample := samples.Sample{
			Time: s.sinceBoot.Add(time.Duration(e.Time)), CPU: int(e.Cpu), Weight: int64(e.Weight),
			End: profile.EndLost,
		}
		if e.lost {
			sample.Stack = placed.Mark(0, stackLost)
		} else {
			trace := b.store.Traces[e.trace]
			task.Comm = trace.Name()
			sample.Stack = placed.Trace(e.trace)
			sample.End = end(trace, 1, new(profile.Losses))
		}
		sample.Task = builder.Task(task)
		made.Samples = append(made.Samples, sample)
	}
	made.Profile = builder.Profile(profile.Meta{}, profile.Losses{})
	return made
}

// conclude ends the run's standard error.
func (s *streaming) conclude() error {
	if s.options.Quiet {
		return nil
	}
	losses, err := s.losses()
	if err != nil {
		return err
	}
	losses[profile.LossTraces] = s.lost
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s\n", plain.Count(s.written, "sample"), plain.Terminal(s.options.Target.String()))
	if s.dropped > 0 {
		fmt.Fprintf(&b, "  %s dropped: the reader of the output, or symbolization, was too slow\n", plain.Count(s.dropped, "sample"))
	}
	b.WriteString(text.Losses(losses))
	if s.written == 0 && s.dropped == 0 && losses.Uncounted() == 0 {
		fmt.Fprintf(&b, "  nothing was sampled: %s\n", s.whyNothing())
	}
	return s.run.conclude(b.String(), nil, s.options.Output)
}
