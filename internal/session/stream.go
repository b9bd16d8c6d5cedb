package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/samples"
	"fulgur/internal/profile/output"
	"fulgur/internal/unwind/stackend"
)

const (
	// maxWaiting limits the samples that wait to be written; more are
	// dropped. It is a few seconds' worth at 1000 samples per second.
	maxWaiting = 1 << 13
	// maxStreamed limits the remembered stacks. Beyond, all are forgotten,
	// and stacks that recur are sent again.
	maxStreamed = 1 << 16
)

// streamFormats names the formats of [Stream].
const streamFormats = "text, jsonl"

// Stream samples code on the CPUs for as long as [Run] does, and writes each
// sample with its stack as it is taken. If naming or writing cannot keep up, it
// drops samples, and the output says how many. The exit code is the same as from
// [Run].
func Stream(ctx context.Context, o ProfileOptions) (exitCode int, err error) {
	if o.Wall {
		return 2, usage.Errorf("a stream of samples cannot have waits")
	}
	if output.IsURL(o.Output) {
		return 2, usage.Errorf("a stream of samples cannot be sent to a URL")
	}
	write, err := streamFormat(&o.Options)
	if err != nil {
		return 2, err
	}
	out := &outputFile{options: &o.Options}
	return drive(ctx, &o.Options, streamed{untimed{o.Subject()}}, out, func(r *run) { newStreaming(r, out, write) })
}

// streamFormat returns the encoder of the requested format.
func streamFormat(o *Options) (func(io.Writer, samples.Batch) error, error) {
	switch o.Format {
	case "", "text":
		return samples.WriteText, nil
	case "jsonl":
		return samples.WriteJSON, nil
	}
	return nil, usage.Errorf("a stream of samples cannot have format %q: choose %s", o.Format, streamFormats)
}

// streamed is the subject of on-CPU samples that are written as they are taken.
type streamed struct{ untimed }

// Load implements [source.Subject].
func (m streamed) Load(common probe.Options) ([]source.Source, error) {
	common.Timeline = true
	return m.Subject.Load(common)
}

// streaming is the [pipeline] of a run whose samples are written one by one.
type streaming struct {
	run      *run
	out      *outputFile
	encode   func(io.Writer, samples.Batch) error
	known    *naming.SymbolCache
	warnings warnOnce
	// sinceBoot is the wall-clock time at which the samples' clock was 0.
	sinceBoot time.Time

	batch *batch // filled by the current poll

	dropped uint64 // samples

	written totals // belongs to the writer
	broken  bool   // likewise: the output cannot be written
}

// newStreaming makes streaming the pipeline of r.
func newStreaming(r *run, out *outputFile, encode func(io.Writer, samples.Batch) error) *streaming {
	now := time.Now()
	s := &streaming{
		run: r, out: out, encode: encode,
		known: naming.NewSymbolCache(), warnings: warnOnce{options: r.options},
		sinceBoot: now.Add(-time.Duration(monotonic.At(now))), batch: newBatch(),
		written: newTotals(),
	}
	r.pipeline, r.queue, r.event = s, newQueue(maxWaiting), s.handleEvent
	return s
}

// close implements [pipeline]. It commits the output: lines before an error are valid.
func (s *streaming) close() error {
	committed := s.run.untilInterrupt(func(ctx context.Context) error { return s.out.until(ctx, s.out.Commit) })
	if s.broken {
		committed = nil // the same error as writeBatch's
	}
	return errors.Join(s.known.Close(), committed)
}

// batch holds the samples of one poll, with a store of its own, so that they
// can be named while the next samples arrive.
type batch struct {
	store     *stacks.Store
	events    []streamEvent
	snapshots *naming.Snapshots
	dropped   uint64 // samples between the previous batch and this one
}

// streamEvent is a sample. Its stack is a trace of the batch, or unknown.
type streamEvent struct {
	oncpu.Event
	trace stacks.TraceID
	lost  bool
}

func newBatch() *batch { return &batch{store: stacks.NewStore(nil)} }

// handleEvent handles a sample record.
func (s *streaming) handleEvent(_ int, record []byte) error {
	event, err := oncpu.ParseEvent(record)
	if err != nil {
		return err
	}
	taken := streamEvent{Event: *event}
	if id, ok := s.run.store.Find(event.Id); ok {
		taken.trace = s.batch.store.CopyTrace(s.run.store, id)
	} else {
		taken.lost = true
	}
	s.batch.events = append(s.batch.events, taken)
	return nil
}

// begin implements [pipeline].
func (*streaming) begin() error { return nil }

// polled implements [pipeline]. It passes the samples to the writer.
func (s *streaming) polled(time.Time) error {
	s.put()
	return s.forget()
}

// put passes the poll's samples to the writer, or drops them if too many wait.
func (s *streaming) put() {
	n := len(s.batch.events)
	if n == 0 {
		return
	}
	full := s.batch
	s.batch = newBatch()
	// A poll with more samples is no sign of a slow writer.
	if waiting := s.run.queue.waiting.Load(); waiting > 0 && waiting+int64(n) > maxWaiting {
		s.dropped += uint64(n)
		s.batch.dropped = full.dropped + uint64(n)
		return
	}
	full.snapshots = naming.SnapshotsOf(full.store)
	s.run.queue.put(func(ctx context.Context) error { return s.writeBatch(ctx, full) }, n)
}

// forget drops the known stacks if there are many. Stacks that recur are sent
// again.
func (s *streaming) forget() error {
	if s.run.store.Names() < maxStreamed {
		return nil
	}
	s.run.store = s.run.store.Next()
	s.run.tracker.Processes.NextPeriod()
	return source.Each(s.run.sources, source.Source.Renew)
}

// finish implements [pipeline]. It passes on the last samples.
func (s *streaming) finish() error {
	s.put()
	return nil
}

// writeBatch names and writes a batch.
func (s *streaming) writeBatch(ctx context.Context, b *batch) error {
	names := naming.New(b.store, s.run.finder, s.run.options.symbolize())
	names.Cache, names.Snapshots, names.Later = s.known, b.snapshots, s.run.options.NoSymbols
	names.Symbolize(ctx)
	s.warnings.warn(names.Warnings())
	samples, losses := s.name(b, names)
	written := s.run.untilInterrupt(func(ctx context.Context) error {
		return s.out.until(ctx, func() error { return s.encode(s.out, samples) })
	})
	s.broken = written != nil
	if err := errors.Join(written, s.known.Trim()); err != nil {
		return err
	}
	s.written.add(uint64(len(b.events)), losses)
	s.written.missing.Add(names, b.samples())
	s.written.gaps.Add(names, b.samples())
	return nil
}

// samples yields the samples with a stack.
func (b *batch) samples() iter.Seq2[stacks.Sample, stacks.Values] {
	return func(yield func(stacks.Sample, stacks.Values) bool) {
		for _, e := range b.events {
			if !e.lost && !yield(stacks.Sample{Trace: e.trace}, stacks.Values{1}) {
				return
			}
		}
	}
}

// name symbolizes a batch, and returns what its samples lack.
func (s *streaming) name(b *batch, names *naming.Names) (made samples.Batch, losses profile.Losses) {
	builder := profile.NewBuilder()
	placed := naming.NewStackBuilder(builder, b.store, names)
	made.Dropped = b.dropped
	for _, e := range b.events {
		task := profile.Task{PID: int(e.Pid), TID: int(e.Tid), Comm: "[unknown]"}
		sample := samples.Sample{
			Time: s.sinceBoot.Add(time.Duration(e.Time)), CPU: int(e.Cpu), Weight: int64(e.Weight),
			End: stackend.Lost,
		}
		if e.lost {
			sample.Stack = placed.Mark(0, stackLost)
			losses[profile.LossTraces]++
		} else {
			trace := b.store.Traces[e.trace]
			task.Comm = trace.Name()
			sample.Stack = placed.Trace(e.trace)
			sample.End = end(placed, trace, 1, &losses)
		}
		sample.Task = builder.Task(task)
		made.Samples = append(made.Samples, sample)
	}
	made.Profile = builder.Profile(profile.Meta{}, profile.Losses{})
	missing := made.Profile.MissingNames(names.Later)
	for _, sample := range made.Samples {
		if m := missing[sample.Stack]; m.Missing {
			losses[m.Loss]++
		}
	}
	return made, losses
}

// conclude implements [pipeline].
func (s *streaming) conclude() error {
	if s.run.options.Quiet {
		return nil
	}
	losses, _, err := s.run.losses()
	if err != nil {
		return err
	}
	all := s.written
	all.lost, all.dropped = all.lost.Plus(losses), s.dropped
	headline := fmt.Sprintf("%s of %s", s.run.noun().Count(all.samples), plain.Terminal(s.run.options.Target.String()))
	return s.run.concludeParts(headline, all, s.run.options.Output)
}
