package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/text"
	"fulgur/internal/symbols/debugfile"
)

// MinWindow is the shortest window. Each window has a fixed cost, however short
// it is.
const MinWindow = 100 * time.Millisecond

// maxStacks limits the distinct stacks of a window. Each takes a few hundred
// bytes.
const maxStacks = 1 << 17

// Window is the profile of one window. Windows follow each other without gaps.
type Window struct {
	// Number is the window's number, from 1.
	Number  int
	Profile *profile.Profile
	// Value is the index of the value to output.
	Value int
}

// Windows describe how a measurement is cut into windows, and where they go.
type Windows struct {
	// Every is the length of a window.
	Every time.Duration
	// Deliver is called with one window at a time. If it takes longer than
	// a window, the next window is longer. An error ends the measurement.
	Deliver func(Window) error
	// Ready, if not nil, is called before the first sample, once the
	// measurement is sure to start.
	Ready func()
}

// ProfileWindows samples code on the CPUs for as long as [Profile] does, and
// delivers a profile of each window while sampling goes on. A window ends early
// when its distinct stacks reach a limit. The exit code is the same as from
// [Profile]. A wait that spans several windows counts in each of them, for its
// share.
//
// At most three windows are in memory at a time: memory does not grow with
// time.
func ProfileWindows(ctx context.Context, o ProfileOptions, to Windows) (exitCode int, err error) {
	if to.Every < MinWindow {
		return 2, usage.Errorf("windows of %s are too short: the minimum is %s", to.Every, MinWindow)
	}
	what := untimed{profiled(&o)}
	if code, err := complete(what, &o.Options); err != nil {
		return code, err
	}
	finder, code, err := prepare(what, &o.Options)
	if err != nil {
		return code, err
	}
	launched, err := target.Launch(o.Command, &o.Target)
	if err != nil {
		return 1, err
	}
	err = takeWindows(ctx, what, &o.Options, finder, launched, to)
	return exitCodeOf(ctx, launched, err, &o.Options)
}

func takeWindows(ctx context.Context, what source.Subject, o *Options, finder *debugfile.Finder, launched *target.Launched, to Windows) (err error) {
	r, err := attach(what, o, finder)
	if err != nil {
		return doctor.Explain(err, "profile "+o.Target.String())
	}
	w := &windows{
		run: r, Windows: to,
		known: naming.NewSymbolCache(), warnings: warnOnce{options: o}, lacks: naming.Lacking{},
		closed: make(chan closedWindow, 1), failed: make(chan error, 1),
	}
	defer func() { err = errors.Join(err, w.known.Close(), r.close()) }()
	r.Due = func() time.Time { return w.end }
	if to.Ready != nil {
		to.Ready()
	}
	if err := w.take(ctx, launched); err != nil {
		return err
	}
	return w.conclude()
}

// windows is a run cut into windows.
type windows struct {
	*run
	Windows
	known    *naming.SymbolCache
	warnings warnOnce

	begin, end time.Time      // the open window's
	number     int            // closed windows
	before     profile.Losses // up to the start of the window

	// Totals of the delivered windows.
	samples int64
	lost    profile.Losses
	lacks   naming.Lacking

	// closed passes windows to the goroutine that names and delivers them.
	// waiting is the number that it has not delivered.
	closed  chan closedWindow
	waiting atomic.Int64
	failed  chan error
}

// closedWindow holds a window's data, before symbolization.
type closedWindow struct {
	store  *stacks.Store
	lost   map[stacks.Key]stacks.Values
	names  *naming.Names
	meta   profile.Meta
	losses profile.Losses
}

func (w *windows) take(ctx context.Context, launched *target.Launched) error {
	// Symbolization goes on until all windows are delivered, unless the
	// user interrupts again.
	names, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		w.write(names)
	}()
	err := w.sample(ctx, w, launched)
	if err == nil {
		err = w.cut(w.Start.Add(w.Duration))
	}
	close(w.closed)
	again, stop := w.naming(ctx)
	defer stop()
	defer context.AfterFunc(again, cancel)()
	<-delivered
	select {
	case failed := <-w.failed:
		return errors.Join(err, failed)
	default:
		return err
	}
}

func (w *windows) Enable() error {
	w.begin = time.Now()
	w.end = w.begin.Add(w.Every)
	return w.run.Enable()
}

// Poll reads the kernel side's data, and closes the window when it is due.
func (w *windows) Poll() (busy bool, err error) {
	busy, err = w.run.Poll()
	select {
	case failed := <-w.failed:
		return busy, errors.Join(err, failed)
	default:
	}
	if err != nil || !w.due(time.Now()) {
		return busy, err
	}
	return busy, w.turn()
}

// due reports whether to close the window: its time is over, the previous
// window has been delivered, and enough of the run is left for another; or the
// window is full.
func (w *windows) due(now time.Time) bool {
	return w.full() || !now.Before(w.end) && w.waiting.Load() == 0 && !w.nearlyOver(now)
}

// full reports whether the window has reached its limit of stacks. It is then
// closed even while the previous one is being written, which may block.
func (w *windows) full() bool { return w.store.Names() >= maxStacks }

// nearlyOver reports whether the rest of the run is too short for a window of
// its own.
func (w *windows) nearlyOver(now time.Time) bool {
	return w.Limit > 0 && w.Limit-now.Sub(w.Start) < w.Every/10
}

// turn closes the open window and opens the next. The traces of all counts
// drained here are already in the rings; later counts send their traces again.
func (w *windows) turn() error {
	if err := w.each(source.Source.BeginCut); err != nil {
		return err
	}
	now, at := time.Now(), monotonic.Now()
	// Cut all sources together: each cut takes the kernel a while.
	if err := w.each(func(s source.Source) error { return s.Cut(at) }); err != nil {
		return err
	}
	if err := w.each(func(s source.Source) error { return errors.Join(s.Renew(), s.Counts().Flip()) }); err != nil {
		return err
	}
	if _, err := w.run.Poll(); err != nil {
		return err
	}
	for !w.end.After(now) {
		w.end = w.end.Add(w.Every)
	}
	return w.cut(now)
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

// cut hands the window, which ends at the given time, to the writer.
func (w *windows) cut(end time.Time) error {
	losses, err := w.losses()
	if err != nil {
		return err
	}
	p := closedWindow{
		store: w.store, lost: w.count(),
		losses: losses.Minus(w.before), meta: w.meta(w.begin, end.Sub(w.begin)),
	}
	p.names = naming.New(w.store, w.finder, w.options.symbolize())
	p.names.Cache, p.names.Later = w.known, w.options.NoSymbols
	w.Processes.FollowPerfMaps()
	p.names.Snapshots = naming.PerfMapsOf(w.store)
	pending, err := w.pending()
	if err != nil {
		return err
	}
	w.store = w.store.Next(pending...)
	w.Processes.NextPeriod()
	w.begin, w.before = end, losses
	w.waiting.Add(1)
	w.closed <- p
	return nil
}

// write names and delivers windows until the channel is closed.
func (w *windows) write(ctx context.Context) {
	for p := range w.closed {
		w.number++
		p.names.Symbolize(ctx)
		w.warnings.warn(p.names.Warnings())
		window := Window{
			Number:  w.number,
			Profile: buildProfile(w.subject, p.store, p.lost, p.names, p.meta, p.losses, nil),
			Value:   w.subject.Shown(),
		}
		w.samples += window.Profile.Total(0)
		w.lost = w.lost.Plus(window.Profile.Losses)
		w.lost[profile.LossUnresolvedFrames] = 0 // counted once for the run
		w.lacks.Add(p.names)
		if err := errors.Join(w.Deliver(window), w.known.Trim()); err != nil {
			w.failed <- err
			for range w.closed { // unblock the sender
			}
			return
		}
		w.waiting.Add(-1)
	}
}

// conclude prints the run's closing summary: samples, losses and hints.
func (w *windows) conclude() error {
	if w.options.Quiet {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s of %s\n", plain.Count(uint64(w.samples), "sample"), plain.Count(uint64(w.number), "window"), plain.Terminal(w.options.Target.String()))
	b.WriteString(text.Losses(w.lost))
	if w.samples == 0 && w.lost.Uncounted() == 0 {
		fmt.Fprintf(&b, "  nothing was sampled: %s\n", w.whyNothing())
	}
	if problem := w.unwinder.Problem(); problem != nil {
		fmt.Fprintln(&b, "fulgur: unwind tables:", plain.Error(problem))
	}
	return w.run.conclude(b.String(), w.lacks.Remedies(w.finder), "") // the caller has named the files
}
