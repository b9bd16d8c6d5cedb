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

// MinWindow is the shortest window: what each costs does not depend on how long
// it is.
const MinWindow = 100 * time.Millisecond

// maxStacks is how many different stacks a window has at most. They take some hundred
// bytes each.
const maxStacks = 1 << 17

// Window is the profile of one of the windows that follow each other without a
// gap.
type Window struct {
	// Number counts them from 1.
	Number  int
	Profile *profile.Profile
	// Value is the index of the value that outputs show.
	Value int
}

// Windows say how a measurement is cut into windows, and what becomes of them.
type Windows struct {
	// Every is how long each is.
	Every time.Duration
	// Deliver takes them, one at a time. If that takes longer than a window, the next
	// one is longer. An error ends the measurement.
	Deliver func(Window) error
	// Ready is called before the first sample, once nothing stands in its way any
	// more; nil for nobody.
	Ready func()
}

// ProfileWindows samples what runs on the processors for as long as [Profile]
// does, and delivers a profile of every window, while sampling goes on. A window ends
// early when it has met so many different stacks that they would take much memory. The
// exit code is that of [Profile]. A time off the CPU that goes on when a window ends is
// one of each of its windows, for its part.
//
// What is kept is what three windows have: memory does not grow with time.
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

// takeWindows measures and delivers all windows.
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

// windows is a run that is cut into windows.
type windows struct {
	*run
	Windows
	known    *naming.SymbolCache
	warnings warnOnce

	begin, end time.Time      // of the window that is open
	number     int            // of windows that were closed
	before     profile.Losses // up to the begin of the window

	// What those that were delivered have together.
	samples int64
	lost    profile.Losses
	lacks   naming.Lacking

	// closed are windows on their way to the one goroutine that names and
	// delivers them, and waiting is how many it has not delivered.
	closed  chan closedWindow
	waiting atomic.Int64
	failed  chan error
}

// closedWindow is what was seen in a window, without names.
type closedWindow struct {
	store  *stacks.Store
	lost   map[stacks.Key]stacks.Values
	names  *naming.Names
	meta   profile.Meta
	losses profile.Losses
}

// take measures and delivers.
func (w *windows) take(ctx context.Context, launched *target.Launched) error {
	// Names are looked for until all are delivered, unless the user asks a
	// second time.
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

// Poll takes what the kernel side has, and closes the window when it is over.
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

// due reports whether the window is to be closed: when its time is over, the one before
// it has been delivered, and enough is left of the run for another; or when it is full.
func (w *windows) due(now time.Time) bool {
	return w.full() || !now.Before(w.end) && w.waiting.Load() == 0 && !w.nearlyOver(now)
}

// full reports whether the window has as many stacks as it may. Then it is closed even
// while another is being written, which may mean to wait.
func (w *windows) full() bool { return w.store.Names() >= maxStacks }

// nearlyOver reports whether there is too little left of the run for a window of
// its own.
func (w *windows) nearlyOver(now time.Time) bool {
	return w.Limit > 0 && w.Limit-now.Sub(w.Start) < w.Every/10
}

// turn closes the window that is open and opens the next. All that is counted
// before has its trace in the ring when the counts were drained, and what is
// counted later is named anew.
func (w *windows) turn() error {
	if err := w.each(source.Source.BeginCut); err != nil {
		return err
	}
	now, at := time.Now(), monotonic.Now()
	// All of them at once, as to renew one takes the kernel a while.
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

// pending returns the names of the stacks of what goes on.
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

// write names and delivers windows until there are no more.
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
		w.lost[profile.LossUnresolvedFrames] = 0 // windows have the same ones
		w.lacks.Add(p.names)
		if err := errors.Join(w.Deliver(window), w.known.Trim()); err != nil {
			w.failed <- err
			for range w.closed { // let nobody wait
			}
			return
		}
		w.waiting.Add(-1)
	}
}

// conclude ends the run's standard error: what there was, what was lost, and what could
// be done about it.
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
	return w.run.conclude(b.String(), w.lacks.Remedies(w.finder), "") // who wrote the windows named their files
}
