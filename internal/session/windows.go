package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"fulgur/internal/capture/loop"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/timerslack"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// MinWindow is the shortest window. Each window has a fixed cost, however short
// it is.
const MinWindow = 100 * time.Millisecond

// maxStacks limits the distinct stacks of a window. Each takes a few hundred
// bytes.
const maxStacks = 1 << 17

// windows is the [pipeline] of a run whose profile is cut into windows, or is one
// window.
//
// At most three windows are in memory at a time: memory does not grow with
// time.
type windows struct {
	run      *run
	every    time.Duration // 0 if the whole run is one window
	sink     Sink
	known    *naming.SymbolCache
	ahead    ahead // used if the whole run is one window
	slow     bool  // the user knows that looking up names takes long
	warnings warnOnce
	// published has the attributes that processes publish; nil unless asked for.
	published *published
	limits    Limits // of the open window
	asked     uint64 // requested rate, 0 if there is none

	start, next time.Time // beginning of the open window, and of the next
	number      int       // closed windows
	// Up to the start of the window.
	before         profile.Losses
	excludedBefore Excluded

	written totals // of the windows
	last    Window
}

// closedWindow holds a window's data, before symbolization.
type closedWindow struct {
	store  *stacks.Store
	lost   map[stacks.Key]stacks.Values
	names  *naming.Names
	meta   profile.Meta
	losses profile.Losses
	// excluded is what the kernel side excluded by rules.
	excluded Excluded
}

// newWindows makes windows the pipeline of r.
func newWindows(r *run, to Sink) *windows {
	w := &windows{
		run: r, every: r.options.Every, sink: to, known: naming.NewSymbolCache(),
		warnings: warnOnce{options: r.options}, written: newTotals(),
	}
	r.pipeline, r.queue = w, newQueue(1)
	var meta profile.Meta
	r.subject.Describe(&meta)
	w.asked = meta.Frequency
	w.pace(w.asked)
	r.loop.MemoryLimited = r.options.Limits != nil
	if r.options.Owners {
		w.published = newPublished()
	}
	if w.every > 0 {
		r.loop.Due = func() time.Time { return w.next }
	}
	return w
}

// pace makes polls rarer at low rates. It needs unwind tables: with them, samples that cannot wait for
// a poll are urgent. Sources other than samples have no rate.
func (w *windows) pace(rate uint64) {
	if len(w.run.sources) == 1 && w.run.unwinder.HasTables() {
		w.run.loop.Pace(rate)
	}
}

// limit applies the limits of the moment to the next window.
func (w *windows) limit() error {
	if w.run.options.Limits == nil {
		return nil
	}
	before := w.limits.Reduction
	w.limits = w.run.options.Limits()
	if w.limits.Reduction == before {
		return nil
	}
	w.pace(w.frequency())
	return source.Each(w.run.sources, func(s source.Reducible) error { return s.Reduce(max(w.limits.Reduction, 1)) })
}

// frequency returns the rate of the open window, 0 if there is none.
func (w *windows) frequency() uint64 {
	return sampling.Rate{Frequency: w.asked}.Reduced(w.limits.Reduction).Frequency
}

// close implements [pipeline].
func (w *windows) close() error { return w.known.Close() }

// slack is the maximum delay of a poll. It is a tenth of the shortest time between two polls,
// except right after the launch of a command.
const slack = time.Millisecond

// begin implements [pipeline].
func (w *windows) begin() error {
	w.start = w.run.loop.Start
	w.next = w.start.Add(w.every)
	if err := w.limit(); err != nil {
		return err
	}
	if w.run.options.Target.Scope != target.Command {
		if err := timerslack.Set(slack); err != nil {
			slog.Debug("no slack for timers", "error", err) // costs more CPU time, and nothing else
		}
	}
	return nil
}

// polled implements [pipeline]. It closes the window when it is due.
func (w *windows) polled(now time.Time) error {
	if w.due(now) {
		return w.cut()
	}
	w.nameAhead(now)
	return nil
}

// due reports whether to close the window: its time is over, the previous
// window has been delivered, and enough of the run is left for another; or the
// window is full.
func (w *windows) due(now time.Time) bool {
	if w.every == 0 {
		return false
	}
	return w.full() || !now.Before(w.next) && w.run.queue.waiting.Load() == 0 && !w.nearlyOver(now)
}

// full reports whether the window has reached its limit of stacks. It is then
// closed even while the previous one is being written, which may block.
func (w *windows) full() bool { return w.run.store.Names() >= maxStacks }

// nearlyOver reports whether the rest of the run is too short for a window of
// its own.
func (w *windows) nearlyOver(now time.Time) bool {
	return w.run.loop.Limit > 0 && w.run.loop.Limit-now.Sub(w.run.loop.Start) < w.every/10
}

// cut closes the open window and opens the next. The traces of all counts drained here are already
// in the rings; later counts send their traces again.
func (w *windows) cut() error {
	if err := source.Each(w.run.sources, source.Splitter.BeginCut); err != nil {
		return err
	}
	now := time.Now()
	at := monotonic.At(now)
	// Cut all sources together: each cut takes the kernel a while.
	if err := source.Each(w.run.sources, func(s source.Splitter) error { return s.Cut(at) }); err != nil {
		return err
	}
	if err := source.Each(w.run.sources, source.Source.Renew); err != nil {
		return err
	}
	if err := source.Each(w.run.sources, func(s source.Source) error { return s.Counts().Flip() }); err != nil {
		return err
	}
	w.run.closing = at
	_, err := w.run.read()
	w.run.closing = 0
	if err != nil {
		return err
	}
	for !w.next.After(now) {
		w.next = w.next.Add(w.every)
	}
	return w.closeAt(now)
}

// closeAt passes the data up to the given time to the writer, and opens the next window.
func (w *windows) closeAt(end time.Time) error {
	w.run.tracker.Processes.FollowJIT()
	c, err := w.contents(end)
	if err != nil {
		return err
	}
	pending, err := w.pending()
	if err != nil {
		return err
	}
	w.run.store = c.store.Next(pending...) // may add pending stacks to c.store
	c.names = w.names(c.store)
	c.names.Snapshots = naming.SnapshotsOf(c.store)
	w.run.tracker.Processes.NextPeriod()
	w.start = end
	w.put(c)
	return w.limit()
}

// finish implements [pipeline]. It closes the last window.
func (w *windows) finish() error {
	w.run.tracker.Processes.FinishJIT()
	c, err := w.contents(w.run.loop.Start.Add(w.run.loop.Duration))
	if err != nil {
		return err
	}
	c.names = w.names(c.store)
	w.run.store.Seal()
	w.put(c)
	return nil
}

// put passes a window to the writer.
func (w *windows) put(c closedWindow) {
	w.run.queue.put(func(ctx context.Context) error { return w.writeWindow(ctx, c) }, 1)
}

// pending returns the IDs of the stacks of waits in progress.
func (w *windows) pending() (all []uint64, err error) {
	err = source.Each(w.run.sources, func(s source.Waiting) error {
		ids, err := s.Pending()
		all = append(all, ids...)
		return err
	})
	return all, err
}

// contents returns the window's data, up to the given time, without names. The next window begins
// there.
func (w *windows) contents(end time.Time) (c closedWindow, err error) {
	losses, excluded, err := w.run.losses()
	if err != nil {
		return c, err
	}
	c = closedWindow{
		store: w.run.store, lost: w.run.count(), meta: w.run.meta(w.start, end.Sub(w.start)),
		losses: losses.Minus(w.before), excluded: excluded.Minus(w.excludedBefore),
	}
	w.before, w.excludedBefore = losses, excluded
	if rate := w.frequency(); rate != w.asked {
		c.meta.Frequency, c.meta.RequestedFrequency = rate, w.asked
	}
	c.meta.Reduction = w.limits.Reduction
	c.meta.NamesOmitted = w.limits.NoSymbols
	if s, ok := w.run.subject.(source.Collector); ok {
		return c, s.Collect(c.store, &c.meta)
	}
	return c, nil
}

// names returns names for a window's store, which must be complete.
func (w *windows) names(store *stacks.Store) *naming.Names {
	n := naming.New(store, w.run.finder, w.run.options.symbolize())
	n.Cache, n.Later = w.known, w.run.options.NoSymbols || w.limits.NoSymbols
	return n
}

// writeWindow names a window and writes it to the sink.
func (w *windows) writeWindow(ctx context.Context, c closedWindow) (err error) {
	if w.every == 0 {
		w.known.Last()
	}
	w.symbolize(ctx, c.names)
	if err := w.run.unwinder.Problem(); w.every == 0 && err != nil && !w.run.options.Quiet && !c.names.Reports(err) {
		fmt.Fprintln(w.run.options.Stderr, "fulgur: unwind tables:", plain.Error(err))
	}
	w.warnings.warn(c.names.Warnings())
	w.number++
	w.written.missing.Add(c.names, maps.All(c.store.Samples))
	w.written.gaps.Add(c.names, maps.All(c.store.Samples))
	// The search for packages may take as long as building the profile.
	var stripped chan profile.StrippedFiles
	if w.every == 0 {
		stripped = make(chan profile.StrippedFiles, 1)
		go func() { stripped <- w.written.missing.Stripped(w.run.finder) }()
	}
	p, excluded := buildProfile(w.run.subject, c.store, c.lost, c.names, c.meta, c.losses, w.run.judge.Leaves, w.run.recorder)
	if stripped != nil {
		p.Meta.Stripped = <-stripped
	}
	if w.run.owners != nil {
		pids := processesOf(p)
		p.Published, p.Executables = w.published.of(pids), executables(pids)
	}
	w.last = Window{Number: w.number, Profile: p, Value: w.run.first(p), Excluded: c.excluded.Plus(excluded)}
	if w.run.recorder != nil {
		if w.last.Timeline, err = w.run.recorder.finish(p, w.run.ended); err != nil {
			return err
		}
	}
	w.written.add(uint64(p.Total(0)), p.Losses)
	written := w.run.untilInterrupt(func(ctx context.Context) error { return w.sink.Write(ctx, w.last) })
	return errors.Join(written, w.tidy())
}

// tidy frees memory between windows.
func (w *windows) tidy() error {
	if w.run.options.Limits == nil || !w.run.options.Limits().LessMemory {
		return w.known.Trim()
	}
	w.run.unwinder.EvictUnused()
	return w.known.Shrink()
}

// symbolize finds the names. Once a whole run has been sampled, it shows progress if that takes
// long.
func (w *windows) symbolize(ctx context.Context, names *naming.Names) {
	if w.every > 0 {
		names.Symbolize(ctx)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		names.Symbolize(ctx)
	}()
	select {
	case <-done:
		return
	case <-w.run.sampled:
	}
	select {
	case <-done:
	case <-time.After(loop.QuietWait):
		if what := names.Reading(); what != "" && !w.run.options.Quiet && !w.slow {
			w.slow = true
			fmt.Fprintf(w.run.options.Stderr, "fulgur: reading debug information of %s (Ctrl-C skips it)\n", plain.Terminal(what))
		}
		<-done
	}
}

// conclude implements [pipeline].
func (w *windows) conclude() error {
	if w.run.options.Quiet {
		return nil
	}
	if w.every == 0 {
		text, err := w.run.summary(w.last)
		if err != nil {
			return err
		}
		notes := w.run.subject.Notes(w.run.store)
		if w.run.subject.Command() == doctor.Record && !w.run.options.Verbose {
			notes = nil // tables of its parts
		}
		lack := describe.LackOf(w.last.Profile)
		lack.Unmeasured = w.run.unmeasured(true)
		return w.run.conclude(text, notes, lack, w.written, w.run.options.Output)
	}
	headline := fmt.Sprintf("%s, %s of %s", w.run.noun().Count(w.written.samples), plain.Count(uint64(w.number), "window"), plain.Terminal(w.run.options.Target.String()))
	return w.run.concludeParts(headline, w.written, "") // the sink has named the files
}
