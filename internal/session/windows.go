package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"fulgur/internal/capture/loop"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/timerslack"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
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
	*run
	*queue[func(context.Context) error]
	every    time.Duration // 0 if the whole run is one window
	sink     Sink
	known    *naming.SymbolCache
	ahead    ahead // used if the whole run is one window
	slow     bool  // the user knows that looking up names takes long
	warnings warnOnce
	// published has the attributes that processes publish; nil unless asked for.
	published *published
	limits    Limits // since the last turn
	asked     uint64 // requested rate, 0 if there is none

	begin, next time.Time      // beginning of the open window, and of the next
	number      int            // closed windows
	before      profile.Losses // up to the start of the window

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
}

func newWindows(r *run, to Sink) *windows {
	w := &windows{
		run: r, every: r.options.Every, sink: to,
		warnings: warnOnce{options: r.options}, written: newTotals(),
	}
	w.queue = newQueue(1, func(ctx context.Context, work func(context.Context) error) error { return work(ctx) })
	w.known = naming.NewSymbolCache()
	var meta profile.Meta
	w.subject.Describe(&meta)
	w.asked = meta.Frequency
	w.pace(w.asked)
	w.MemoryLimited = w.options.Limits != nil
	if w.options.Owners {
		w.published = newPublished()
	}
	if w.every > 0 {
		w.Due = func() time.Time { return w.next }
	}
	return w
}

// pace makes polls rarer at low rates. Without unwind tables, no sample is urgent, and other
// sources than samples have no rate.
func (w *windows) pace(rate uint64) {
	if len(w.sources) == 1 && w.unwinder.HasTables() {
		w.Pace(rate)
	}
}

// limit applies the limits of the moment to the next window.
func (w *windows) limit() error {
	if w.options.Limits == nil {
		return nil
	}
	before := w.limits.Reduction
	w.limits = w.options.Limits()
	if w.limits.Reduction == before {
		return nil
	}
	w.pace(w.frequency())
	return w.each(func(s source.Source) error { return s.Reduce(max(w.limits.Reduction, 1)) })
}

// frequency returns the rate of the open window, 0 if there is none.
func (w *windows) frequency() uint64 {
	return sampling.Rate{Frequency: w.asked}.Reduced(w.limits.Reduction).Frequency
}

func (w *windows) close() error { return errors.Join(w.known.Close(), w.run.close()) }

// slack is the maximum delay of a poll. It is a tenth of the shortest time between two polls,
// except right after the launch of a command.
const slack = time.Millisecond

func (w *windows) Enable() error {
	w.begin = w.Start
	w.next = w.begin.Add(w.every)
	if err := w.limit(); err != nil {
		return err
	}
	if w.options.Target.Scope != target.Command {
		if err := timerslack.Set(slack); err != nil {
			slog.Debug("no slack for timers", "error", err) // costs more CPU time, and nothing else
		}
	}
	return w.run.Enable()
}

// Poll reads the kernel side's data, and closes the window when it is due.
func (w *windows) Poll() (busy bool, err error) {
	busy, err = w.run.Poll()
	now := time.Now()
	if err := errors.Join(err, w.failed()); err != nil || !w.due(now) {
		w.nameAhead(now)
		return busy, err
	}
	return busy, w.turn()
}

// due reports whether to close the window: its time is over, the previous
// window has been delivered, and enough of the run is left for another; or the
// window is full.
func (w *windows) due(now time.Time) bool {
	if w.every == 0 {
		return false
	}
	return w.full() || !now.Before(w.next) && w.waiting.Load() == 0 && !w.nearlyOver(now)
}

// full reports whether the window has reached its limit of stacks. It is then
// closed even while the previous one is being written, which may block.
func (w *windows) full() bool { return w.store.Names() >= maxStacks }

// nearlyOver reports whether the rest of the run is too short for a window of
// its own.
func (w *windows) nearlyOver(now time.Time) bool {
	return w.Limit > 0 && w.Limit-now.Sub(w.Start) < w.every/10
}

// turn closes the open window and opens the next. The traces of all counts
// drained here are already in the rings; later counts send their traces again.
func (w *windows) turn() error {
	if err := w.each(source.Source.BeginCut); err != nil {
		return err
	}
	now := time.Now()
	at := monotonic.At(now)
	// Cut all sources together: each cut takes the kernel a while.
	if err := w.each(func(s source.Source) error { return s.Cut(at) }); err != nil {
		return err
	}
	if err := w.each(source.Source.Renew); err != nil {
		return err
	}
	if err := w.each(func(s source.Source) error { return s.Counts().Flip() }); err != nil {
		return err
	}
	w.closing = at
	_, err := w.run.Poll()
	w.closing = 0
	if err != nil {
		return err
	}
	for !w.next.After(now) {
		w.next = w.next.Add(w.every)
	}
	return w.turnAt(now)
}

// turnAt hands the data up to the given time to the writer, and opens the next
// window.
func (w *windows) turnAt(end time.Time) error {
	w.Processes.FollowJIT()
	c, losses, err := w.cut(end)
	if err != nil {
		return err
	}
	pending, err := w.pending()
	if err != nil {
		return err
	}
	w.store = c.store.Next(pending...) // may add pending stacks to c.store
	c.names = w.names(c.store)
	c.names.Snapshots = naming.SnapshotsOf(c.store)
	w.Processes.NextPeriod()
	w.begin, w.before = end, losses
	w.putWindow(c)
	return w.limit()
}

// finish closes the last window.
func (w *windows) finish() error {
	w.Processes.FinishJIT()
	c, _, err := w.cut(w.Start.Add(w.Duration))
	if err != nil {
		return err
	}
	c.names = w.names(c.store)
	w.store.Seal()
	w.putWindow(c)
	return nil
}

// putWindow hands a window to the writer.
func (w *windows) putWindow(c closedWindow) {
	w.put(func(ctx context.Context) error { return w.writeWindow(ctx, c) }, 1)
}

// pending returns the IDs of the stacks of waits in progress.
func (w *windows) pending() (all []uint64, err error) {
	err = w.each(func(s source.Source) error {
		ids, err := s.Pending()
		all = append(all, ids...)
		return err
	})
	return all, err
}

// cut returns the window's data, up to the given time, without names, and the run's losses.
func (w *windows) cut(end time.Time) (c closedWindow, losses profile.Losses, err error) {
	if losses, err = w.losses(); err != nil {
		return c, losses, err
	}
	c = closedWindow{
		store: w.store, lost: w.count(),
		losses: losses.Minus(w.before), meta: w.meta(w.begin, end.Sub(w.begin)),
	}
	if rate := w.frequency(); rate != w.asked {
		c.meta.Frequency, c.meta.RequestedFrequency = rate, w.asked
	}
	c.meta.Reduction = w.limits.Reduction
	c.meta.NamesOmitted = w.limits.NoSymbols
	return c, losses, nil
}

// names returns names for a window's store, which must be complete.
func (w *windows) names(store *stacks.Store) *naming.Names {
	n := naming.New(store, w.finder, w.options.symbolize())
	n.Cache, n.Later = w.known, w.options.NoSymbols || w.limits.NoSymbols
	return n
}

// writeWindow names a window and writes it to the sink.
func (w *windows) writeWindow(ctx context.Context, c closedWindow) (err error) {
	if w.every == 0 {
		w.known.Last()
	}
	w.symbolize(ctx, c.names)
	if err := w.unwinder.Problem(); w.every == 0 && err != nil && !w.options.Quiet && !c.names.Reports(err) {
		fmt.Fprintln(w.options.Stderr, "fulgur: unwind tables:", plain.Error(err))
	}
	w.warnings.warn(c.names.Warnings())
	w.number++
	w.written.missing.Add(c.names, maps.All(c.store.Samples))
	w.written.gaps.Add(c.names, maps.All(c.store.Samples))
	// The search for packages may take as long as building the profile.
	var stripped chan profile.StrippedFiles
	if w.every == 0 {
		stripped = make(chan profile.StrippedFiles, 1)
		go func() { stripped <- w.written.missing.Stripped(w.finder) }()
	}
	p := buildProfile(w.subject, c.store, c.lost, c.names, c.meta, c.losses, w.events)
	if stripped != nil {
		p.Meta.Stripped = <-stripped
	}
	if w.owners != nil {
		pids := processesOf(p)
		p.Published, p.Executables = w.published.of(pids), executables(pids)
	}
	w.last = Window{Number: w.number, Profile: p, Value: w.subject.Shown()}
	if w.events != nil {
		if w.last.Timeline, err = w.events.finish(p, w.ended); err != nil {
			return err
		}
	}
	w.written.add(uint64(p.Total(0)), p.Losses)
	written := w.patiently(func(ctx context.Context) error { return w.sink.Write(ctx, w.last) })
	return errors.Join(written, w.tidy())
}

// tidy frees memory between windows.
func (w *windows) tidy() error {
	if w.options.Limits == nil || !w.options.Limits().LessMemory {
		return w.known.Trim()
	}
	w.unwinder.EvictUnused()
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
	case <-w.sampled:
	}
	select {
	case <-done:
	case <-time.After(loop.QuietWait):
		if what := names.Reading(); what != "" && !w.options.Quiet && !w.slow {
			w.slow = true
			fmt.Fprintf(w.options.Stderr, "fulgur: reading debug information of %s (Ctrl-C skips it)\n", plain.Terminal(what))
		}
		<-done
	}
}

// conclude prints the run's closing summary: samples, losses and hints.
func (w *windows) conclude() error {
	if w.options.Quiet {
		return nil
	}
	if w.every == 0 {
		text, err := w.summary(w.last)
		if err != nil {
			return err
		}
		hints := slices.Concat(w.subject.Notes(w.store), w.lackingLines(w.last.Profile.Meta.Stripped, w.written))
		return w.run.conclude(text, hints, w.options.Output)
	}
	headline := fmt.Sprintf("%s, %s of %s", w.noun().Count(w.written.samples), plain.Count(uint64(w.number), "window"), plain.Terminal(w.options.Target.String()))
	return w.concludeParts(headline, w.written, "") // the sink has named the files
}
