package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/trigger"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// Defaults of [FlightOptions].
const (
	DefaultFlightFrequency = 99
	DefaultFlightMemory    = 64 << 20
	DefaultFlightFiles     = 20
)

// The limits of [FlightOptions.Keep].
const (
	minKeep = time.Second
	maxKeep = time.Hour
)

// flightParts is the number of parts that hold the time to keep. What is held is dropped part by part.
const flightParts = 8

// minPart is the shortest part, unless memory is short: each makes the kernel side send its stacks again.
const minPart = 500 * time.Millisecond

// maxUnwritten limits the files that wait to be written, with the one that is being written.
const maxUnwritten = 2

// FlightOptions describe a flight recorder: a recording of which only the last moments are held, and written
// when a trigger fires.
type FlightOptions struct {
	RecordOptions // Output is the directory of files, and Triggers when to write one
	// Keep is the time to hold, and After the time to record after a trigger.
	Keep, After time.Duration
	// Rest is the least time between the triggers of two files. Triggers in between only count.
	Rest time.Duration
	// MaxFiles limits the files in the directory: the oldest ones are removed. 0 means the default.
	MaxFiles int
	// MaxMemory limits what is held, in bytes; 0 means the default. While files are written, what they need stays,
	// at most maxUnwritten times as much.
	MaxMemory int64
}

// complete fills in defaults and checks the options.
func (o *FlightOptions) complete() error {
	o.Frequency = cmp.Or(o.Frequency, DefaultFlightFrequency)
	o.MaxFiles = cmp.Or(o.MaxFiles, DefaultFlightFiles)
	o.MaxMemory = cmp.Or(o.MaxMemory, DefaultFlightMemory)
	o.Format = cmp.Or(o.Format, "firefox")
	o.TimesIfAny = true
	if o.Keep < minKeep || o.Keep > maxKeep {
		return usage.Errorf("%s: %v is not from %v to %v", usage.Keep, o.Keep, minKeep, maxKeep)
	}
	if o.After > maxKeep {
		return usage.Errorf("%s: %v is longer than %v", usage.After, o.After, maxKeep)
	}
	if o.MaxMemory < minFlightMemory {
		return usage.Errorf("%s: %d bytes are too few; the minimum is 4M", usage.MaxMemory, o.MaxMemory)
	}
	if o.Via = cmp.Or(o.Via, viaBPF); o.Via != viaBPF && o.Via != "auto" {
		return usage.Errorf("a flight recorder needs BPF programs, as root has them")
	}
	o.Via = viaBPF
	if !o.hasTimes() {
		return usage.Errorf("a flight recorder writes files with times: choose firefox or html with %s", usage.Format)
	}
	return nil
}

// minFlightMemory is the smallest limit of memory.
const minFlightMemory = 4 << 20

// Flight records until ctx ends, the target exits or the duration is over, and writes a file whenever a trigger
// fires. The exit code is the same as from [Run].
func Flight(ctx context.Context, o FlightOptions) (exitCode int, err error) {
	if err := o.complete(); err != nil {
		return 1, err
	}
	to, err := newIncidents(&o)
	if err != nil {
		return 1, err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGUSR1) // at once: by default, it kills
	defer signal.Stop(signals)
	return drive(ctx, &o.Options, o.Subject(), to, func(r *run) { newFlight(r, &o, to, signals) })
}

// flight is the [pipeline] of a flight recorder. It divides the recording into parts, each with stacks and
// events of its own, and holds the last ones in memory.
type flight struct {
	run      *run
	options  *FlightOptions
	out      *incidents
	known    *naming.SymbolCache
	warnings warnOnce
	triggers *trigger.Set
	signals  <-chan os.Signal

	held    []*heldPart // oldest first; without the open one
	opened  int64       // when the open part began, CLOCK_MONOTONIC in ns
	checked time.Time   // when memory was last looked at
	before  profile.Losses
	periods int // parts since the last period of files, see [process.Table.NextPeriod]

	pending *incident // has fired; its time is not over
	last    int64     // when the trigger of the last file fired
	short   time.Duration
	counted flightCounts

	written totals // belongs to the writer
	failed  uint64 // likewise: files that could not be written
}

// flightCounts counts what happened to triggers.
type flightCounts struct {
	rested, busy, shortened uint64
}

// heldPart is a closed part of the recording. It no longer changes.
type heldPart struct {
	recorder   *recorder
	lost       map[stacks.Key]stacks.Values
	snapshots  *naming.Snapshots
	losses     profile.Losses
	start, end int64 // CLOCK_MONOTONIC, ns
	bytes      int64 // of memory, about
}

// incident is what triggers a file.
type incident struct {
	firings []trigger.Firing
	due     int64 // when the recording after it is over, CLOCK_MONOTONIC in ns
}

// newFlight makes a flight recorder the pipeline of r.
func newFlight(r *run, o *FlightOptions, out *incidents, signals <-chan os.Signal) {
	f := &flight{
		run: r, options: o, out: out, known: naming.NewSymbolCache(), warnings: warnOnce{options: r.options},
		signals: signals, written: newTotals(), last: -1,
	}
	r.pipeline, r.queue = f, newQueue(maxUnwritten)
	r.loop.Due = f.due
}

// close implements [pipeline].
func (f *flight) close() error { return f.known.Close() }

// begin implements [pipeline].
func (f *flight) begin() (err error) {
	f.triggers, err = trigger.New(f.options.Triggers, trigger.Host{Target: f.run.options.Target, Members: f.run.Targets})
	if err != nil {
		return err
	}
	f.run.recorder.inParts, f.run.recorder.watch = true, f.watch()
	f.opened = int64(monotonic.Now())
	f.checked = time.Now()
	return nil
}

// watch tells the triggers of the events of the recording.
func (f *flight) watch() eventWatch {
	ids := func(t profile.ThreadID) (pid, tid int) { return f.run.recorder.ThreadIDs(t) }
	return eventWatch{
		onCPU: f.triggers.OnCPU,
		offCPU: func(t profile.ThreadID, e profile.OffCPU) {
			pid, tid := ids(t)
			f.triggers.OffCPU(trigger.Wait{PID: pid, TID: tid, OffCPU: e})
		},
		marker: func(t profile.ThreadID, m profile.Marker) {
			pid, tid := ids(t)
			f.triggers.Marker(trigger.Marker{PID: pid, TID: tid, MarkerType: f.run.recorder.MarkerType(m.Type), Marker: m})
		},
	}
}

// due returns when the next poll has to be.
func (f *flight) due() time.Time {
	now := time.Now()
	if f.pending == nil {
		return now.Add(f.partLength())
	}
	return now.Add(time.Duration(f.pending.due - int64(monotonic.At(now))))
}

// partLength is how long a part lasts.
func (f *flight) partLength() time.Duration { return max(f.options.Keep/flightParts, minPart) }

// polled implements [pipeline].
func (f *flight) polled(now time.Time) error {
	f.triggers.Look(now)
	f.takeSignals()
	at := int64(monotonic.At(now))
	f.take(f.triggers.Take(), at)
	if f.pending != nil && at >= f.pending.due {
		return f.dispatch()
	}
	if time.Duration(at-f.opened) >= f.partLength() || f.full(now) {
		return f.rotate(false)
	}
	return nil
}

// takeSignals passes signals on to the triggers.
func (f *flight) takeSignals() {
	for {
		select {
		case <-f.signals:
			f.triggers.Signal()
		default:
			return
		}
	}
}

// take handles firings. Those that come while an incident is pending belong to it.
func (f *flight) take(all []trigger.Firing, now int64) {
	for _, fired := range all {
		slog.Debug("trigger", "name", fired.Trigger, "value", fired.Value)
		switch {
		case f.pending != nil:
			if len(f.pending.firings) < maxShownFirings {
				f.pending.firings = append(f.pending.firings, fired)
			}
		case f.last >= 0 && fired.At-f.last < int64(f.options.Rest) && fired.Name != "exit": // which ends the recording
			f.counted.rested++
		case f.run.queue.waiting.Load() >= maxUnwritten:
			f.counted.busy++
		default:
			f.last = fired.At
			// What has happened since the trigger is there already.
			f.pending = &incident{firings: []trigger.Firing{fired}, due: max(fired.At+int64(f.options.After), now)}
		}
	}
}

// maxShownFirings limits the triggers that a file shows.
const maxShownFirings = 100

// full reports whether the open part takes too much memory, and drops parts beyond the limit. It looks twice a
// second.
func (f *flight) full(now time.Time) bool {
	if now.Sub(f.checked) < time.Second/2 {
		return false
	}
	f.checked = now
	open := f.run.recorder.Memory()
	f.drop(int64(monotonic.At(now)), open)
	return open > f.options.MaxMemory/flightParts
}

// drop drops the parts that are older than the time to keep, and those beyond the limit of memory. open is what
// the open part takes.
func (f *flight) drop(now, open int64) {
	used := open
	for _, p := range f.held {
		used += p.bytes
	}
	from := now - int64(f.options.Keep)
	if f.pending != nil {
		from = f.pending.firings[0].At - int64(f.options.Keep)
	}
	for len(f.held) > 0 && (f.held[0].end < from || used > f.options.MaxMemory) {
		if f.held[0].end >= from {
			f.noteShort(time.Duration(now - f.held[0].end))
		}
		used -= f.held[0].bytes
		f.held = slices.Delete(f.held, 0, 1)
	}
}

// noteShort says, once, that the limit of memory holds less than the time to keep.
func (f *flight) noteShort(holds time.Duration) {
	f.counted.shortened++
	if f.short == 0 {
		f.run.options.warn(fmt.Sprintf("%d MB hold only the last %.1f s; raise %s", f.options.MaxMemory>>20, holds.Seconds(), usage.MaxMemory))
	}
	if f.short == 0 || holds < f.short {
		f.short = holds
	}
}

// rotate closes the open part and opens the next. With cut, waits in progress are split, so that the closed part has
// them up to now.
func (f *flight) rotate(cut bool) error {
	r := f.run
	if cut {
		if err := source.Each(r.sources, source.Splitter.BeginCut); err != nil {
			return err
		}
		at := monotonic.Now()
		f.triggers.Cut(int64(at))
		if err := source.Each(r.sources, func(s source.Splitter) error { return s.Cut(at) }); err != nil {
			return err
		}
	}
	if err := source.Each(r.sources, source.Source.Renew); err != nil {
		return err
	}
	if _, err := r.read(); err != nil {
		return err
	}
	var waiting []uint64
	if err := source.Each(r.sources, func(s source.Waiting) error {
		ids, err := s.Pending()
		waiting = append(waiting, ids...)
		return err
	}); err != nil {
		return err
	}
	r.tracker.Processes.FollowJIT()
	before := r.store.Previous()
	store := r.store.Next(waiting...)
	if before != nil {
		before.Seal() // no longer asked for stacks
		before.Clip()
	}
	if n := len(f.held); n > 0 {
		f.held[n-1].bytes = f.held[n-1].recorder.Memory()
	}
	return f.closePart(store)
}

// closePart closes the open part. The next one has its stacks in store.
func (f *flight) closePart(store *stacks.Store) error {
	r := f.run
	now := monotonic.Now()
	lost := r.count()
	losses, _, err := r.losses()
	if err != nil {
		return err
	}
	closed := r.recorder
	next, err := closed.next(store, now)
	if err != nil {
		return err
	}
	part := &heldPart{
		recorder: closed, lost: lost, snapshots: naming.SnapshotsOf(closed.store), losses: losses.Minus(f.before),
		start: f.opened, end: int64(now), bytes: closed.Memory(),
	}
	r.store, r.recorder, r.event = store, next, next.handleEvent
	f.before, f.opened = losses, int64(now)
	f.held = append(f.held, part)
	f.drop(int64(now), 0)
	// Files stay readable for two periods, and longer while parts that need them are written.
	if f.periods++; f.periods > len(f.held)+1 && r.queue.waiting.Load() == 0 {
		f.periods = 0
		r.tracker.Processes.NextPeriod()
	}
	return nil
}

// dispatch passes what is held to the writer.
func (f *flight) dispatch() error {
	if err := f.rotate(true); err != nil {
		return err
	}
	f.put()
	return nil
}

// put passes the pending incident to the writer, with all parts that are held.
func (f *flight) put() {
	i, parts := f.pending, slices.Clone(f.held)
	f.pending = nil
	bytes := int64(0)
	for _, p := range parts {
		bytes += p.bytes
	}
	slog.Debug("writing what is held", "parts", len(parts), "bytes", bytes)
	end := f.opened
	meta := f.run.meta(f.run.loop.Start, 0)
	f.run.queue.put(func(ctx context.Context) error { return f.write(ctx, i, parts, meta, end) }, 1)
}

// finish implements [pipeline]. It writes the pending incident, or that of the end.
func (f *flight) finish() error {
	r := f.run
	r.tracker.Processes.FinishJIT()
	f.takeSignals()
	at := int64(r.ended)
	f.take(f.triggers.Take(), at)
	if over := r.loop.Limit > 0 && r.loop.Duration >= r.loop.Limit; f.triggers.Has("stop") && (r.loop.Interrupted || over) {
		value := "the duration is over"
		if r.loop.Interrupted {
			value = "interrupted"
		}
		f.last = -1 // however soon after the last
		f.triggers.Fire(trigger.Firing{Trigger: "stop", Name: "stop", At: at, Begin: at, Value: value})
		f.take(f.triggers.Take(), at)
	}
	if f.pending == nil {
		return nil
	}
	if err := f.closePart(r.store.Next()); err != nil {
		return err
	}
	f.put()
	return nil
}

// conclude implements [pipeline].
func (f *flight) conclude() error {
	if f.run.options.Quiet {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %s", plain.Count(uint64(f.out.written), "file"), plain.Terminal(f.run.options.Output))
	counts := f.triggers.Counts()
	if len(counts) == 0 {
		b.WriteString(": no trigger fired")
	}
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "\n  %s fired %s", plain.Terminal(text), plain.Count(counts[text], "time"))
	}
	b.WriteByte('\n')
	for _, line := range []struct {
		n    uint64
		text string
	}{
		{f.counted.rested, fmt.Sprintf("came within %v of the one before (%s), and only count", f.options.Rest, usage.Rest)},
		{f.counted.busy, "came while files were being written, and only count"},
	} {
		if line.n > 0 {
			fmt.Fprintf(&b, "  %s %s\n", plain.Count(line.n, "trigger"), line.text)
		}
	}
	if f.failed > 0 {
		fmt.Fprintf(&b, "  %s could not be written\n", plain.Count(f.failed, "file"))
	}
	if f.counted.shortened > 0 {
		fmt.Fprintf(&b, "  at times, memory held only the last %.1f s of %v: raise %s\n", f.short.Seconds(), f.options.Keep, usage.MaxMemory)
	}
	lack := describe.Lack{Losses: f.written.lost, Of: f.run.noun(), Samples: f.written.samples, Unmeasured: f.run.unmeasured(true)}
	if f.out.written > 0 {
		lack.Stripped = f.written.missing.Stripped(f.run.finder)
	}
	return f.run.conclude(b.String(), nil, lack, f.written, "")
}

var errNoParts = errors.New("nothing was recorded")
