package session

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/loop"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/stacks/stackstest"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/timerslack"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/runtimes"
	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/testenv"
)

// newTestWindows returns a run without a kernel side that has a store's stacks and passes
// its windows to write.
func newTestWindows(t *testing.T, every time.Duration, store *stacks.Store, write func(Window) error) *windows {
	t.Helper()
	o := &Options{Every: every, Stderr: io.Discard}
	w := newWindows(&run{
		subject: clock(t), options: o, finder: debugfiletest.NewFinder(t), store: store,
		tracker: process.Tracker{Sideband: new(process.Sideband), Processes: process.NewTable(process.Options{})},
		loop:    loop.Loop{Target: target.Target{Scope: target.System}, Rest: loop.PollAtMost},
	}, SinkFunc(func(_ context.Context, w Window) error { return write(w) }))
	t.Cleanup(func() {
		if err := w.run.close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// collected collects windows.
type collected []Window

func (c *collected) take(w Window) error {
	*c = append(*c, w)
	return nil
}

// Each window contains only its own counts and losses, and all windows together contain
// everything.
func TestWindowsContents(t *testing.T) {
	var got collected
	w := newTestWindows(t, time.Second, stackstest.Own(t), got.take)
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.run.queue.write(t.Context())
	}()
	type part struct {
		id            uint64 // of the counted stack
		samples, lost uint64
		traces        uint64 // lost traces of stacks
		length        time.Duration
	}
	parts := []part{
		{id: 1, samples: 5, lost: 3, length: time.Second},
		// The stack has its name from an earlier window.
		{id: 1, samples: 7, length: 2 * time.Second},
		{id: 99, samples: 2, lost: 1, traces: 2, length: time.Second},
		{length: time.Second},
	}
	begin := time.Now()
	w.start = begin
	for _, of := range parts {
		w.run.sources = []source.Source{newCounting(of.id, of.samples)}
		w.run.tracker.Lost += of.lost
		begin = begin.Add(of.length)
		if err := w.closeAt(begin); err != nil {
			t.Fatal(err)
		}
	}
	w.run.queue.end()
	testenv.Receive(t, written, "the writer does not end")
	w.run.sources = nil
	if len(got) != len(parts) {
		t.Fatalf("got %d windows, want %d", len(got), len(parts))
	}
	for i, want := range parts {
		p := got[i].Profile
		if got[i].Number != i+1 || uint64(p.Total(0)) != want.samples || uint64(p.Total(1)) != 10*want.samples ||
			p.Losses[profile.LossSideband] != want.lost || p.Losses[profile.LossTraces] != want.traces || p.Meta.Duration != want.length {
			t.Errorf("window %d: got number %d, %d and %d, losses %+v, duration %s; want %+v", i+1, got[i].Number, p.Total(0), p.Total(1), p.Losses, p.Meta.Duration, want)
		}
		if i > 0 {
			before := got[i-1].Profile.Meta
			if end := before.Start.Add(before.Duration); !p.Meta.Start.Equal(end) {
				t.Errorf("window %d: got start %s, want the previous end %s", i+1, p.Meta.Start, end)
			}
		}
		if has := strings.Contains(fmt.Sprint(lines(p)), "stackstest.NewStore"); has != (want.id == 1) {
			t.Errorf("window %d: got %v, want stack 1 only where it counts", i+1, lines(p))
		}
	}
	if w.written.samples != 14 || w.written.lost[profile.LossSideband] != 4 || w.written.lost[profile.LossTraces] != 2 || w.number != len(parts) || w.run.queue.waiting.Load() != 0 {
		t.Errorf("all windows: got %d samples, lost %+v, %d, %d waiting; want the sums of all windows", w.written.samples, w.written.lost, w.number, w.run.queue.waiting.Load())
	}
}

// Records of the next window that arrive while a window is closing count in that next window.
func TestWindowsClosing(t *testing.T) {
	const end = 100
	var got collected
	w := newTestWindows(t, time.Second, stackstest.Own(t), got.take)
	c := newCounting(0, 0)
	w.run.sources = []source.Source{c}
	w.run.closing = end
	for id, at := range map[uint64]uint64{2: end - 1, 3: end, 4: end + 1} {
		record := stackstest.Trace{ID: id, Time: at, Kernel: []uint64{0xffff0000 + id}, KernelEnd: stackstest.Ended}.Record(t)
		binary.NativeEndian.PutUint64(record[unsafe.Offsetof(bpf.StackRecord{}.First)+unsafe.Offsetof(bpf.StackRecord{}.First.Weight):], id)
		if err := w.run.addStack(&c.counts, record); err != nil {
			t.Fatal(err)
		}
	}
	w.run.closing = 0
	for range 3 {
		if err := errors.Join(w.closeAt(time.Now()), (<-w.run.queue.items).do(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	w.run.sources = nil
	for i, want := range []struct{ samples, weight int64 }{{2, 2 + 3}, {1, 4}, {0, 0}} {
		if p := got[i].Profile; p.Total(0) != want.samples || p.Total(1) != want.weight || p.Losses[profile.LossTraces] != 0 {
			t.Errorf("window %d: got %d samples, a weight of %d and %d lost traces, want %+v", i+1, p.Total(0), p.Total(1), p.Losses[profile.LossTraces], want)
		}
	}
}

// silent is a reader for a process that never answers.
type silent struct{}

func (silent) Places(runtimes.Frame) ([]runtimes.Place, bool) { return nil, false }

func (silent) Kept() int { return 0 }

// A stack whose process has not yet named its functions is counted when the window ends.
func TestWindowsUnfinished(t *testing.T) {
	store := stacks.NewStore(stackstest.Layout{})
	store.Readers = func(int, runtimes.Kind, uint64) runtimes.Reader { return silent{} }
	var got collected
	w := newTestWindows(t, time.Second, store, got.take)
	c := newCounting(0, 0)
	w.run.sources = []source.Source{c}
	frame := []uint64{1<<bpf.FrameRuntimeShift | uint64(bpf.RuntimeV8)<<bpf.FrameKindShift | 0x5000, 1 << 32}
	record := stackstest.Trace{ID: 2, PID: 1, User: frame, End: stackstest.Ended}.Record(t)
	binary.NativeEndian.PutUint64(record[unsafe.Offsetof(bpf.StackRecord{}.First)+unsafe.Offsetof(bpf.StackRecord{}.First.Weight):], 7)
	if err := w.run.addStack(&c.counts, record); err != nil {
		t.Fatal(err)
	}
	if n := len(store.Samples); n != 0 {
		t.Errorf("got %d samples before the end of the window, want 0", n)
	}
	if err := errors.Join(w.closeAt(time.Now()), (<-w.run.queue.items).do(t.Context())); err != nil {
		t.Fatal(err)
	}
	w.run.sources = nil
	if p := got[0].Profile; p.Total(0) != 1 || p.Total(1) != 7 {
		t.Errorf("got %d samples with a weight of %d, want 1 and 7", p.Total(0), p.Total(1))
	}
}

// renewing is a source that calls renewed after it has renewed the IDs of stacks.
type renewing struct {
	source.Source
	renewed func()
}

func (r renewing) Renew() error {
	defer r.renewed()
	return r.Source.Renew()
}

// A sample that is taken while a window is closing counts in the next one.
func TestCutSamples(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	o := &ProfileOptions{
		Options: Options{
			Target: target.Target{Scope: target.Processes, PIDs: []int{os.Getpid()}}, Format: "folded", Stderr: io.Discard,
			Every: time.Hour, Unwind: "fp",
		},
		Config: oncpu.Config{Event: "cpu-clock", Frequency: 999},
	}
	what := o.Subject()
	if err := what.Choose(); err != nil {
		t.Fatal(err)
	}
	r, err := newRun(what, &o.Options, debugfiletest.NewFinder(t))
	if err != nil {
		t.Fatal(err)
	}
	w := newWindows(r, SinkFunc(func(context.Context, Window) error { return nil }))
	defer func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := w.run.Enable(); err != nil {
		t.Fatal(err)
	}
	sampled := func() {
		before, err := w.run.stats()
		if err != nil {
			t.Fatal(err)
		}
		testenv.Await(t, func() bool {
			for range 1 << 20 { // use CPU time
			}
			now, err := w.run.stats()
			return err != nil || now.Samples > before.Samples
		}, func() string { return "no sample" })
	}
	w.run.sources[0] = renewing{w.run.sources[0], sampled}
	if err := w.cut(); err != nil {
		t.Fatal(err)
	}
	if next := w.run.sources[0].Counts().Total(); len(next) == 0 {
		t.Error("got no sample in the next window")
	}
}

// counting is a source with samples of one stack.
type counting struct {
	source.Source
	counts stacks.Counts
}

func newCounting(id, samples uint64) *counting {
	c := new(counting)
	c.counts.Take() // the next window
	if samples > 0 {
		c.counts.Add(stacks.Key{ID: id}, stacks.Values{samples, 10 * samples})
	}
	return c
}

func (c *counting) Counts() *stacks.Counts      { return &c.counts }
func (c *counting) Stats() (probe.Stats, error) { return probe.Stats{}, nil }

// An error in the delivery of a window ends the measurement, and later windows do not
// block.
func TestWindowsDeliveryFails(t *testing.T) {
	failure := errors.New("no room")
	delivered := 0
	w := newTestWindows(t, time.Second, stackstest.Own(t), func(Window) error {
		delivered++
		return failure
	})
	w.every = MinWindow
	err := w.run.measure(t.Context(), nil)
	if !errors.Is(err, failure) || delivered != 1 {
		t.Errorf("got error %v after %d windows, want %v after the first", err, delivered, failure)
	}
}

// Windows after an error are dropped without blocking.
func TestWindowsAfterFailure(t *testing.T) {
	w := newTestWindows(t, time.Second, stackstest.Own(t), func(Window) error { return errors.New("no room") })
	go w.run.queue.write(t.Context())
	done := make(chan error, 1)
	go func() {
		var errs []error
		for range 4 { // more than the queue holds
			errs = append(errs, w.closeAt(time.Now()))
		}
		w.run.queue.end()
		done <- errors.Join(errs...)
	}()
	if err := testenv.Receive(t, done, "closing a window blocks on a writer that has failed"); err != nil {
		t.Error(err)
	}
}

// Windows cover the measurement without gaps, by its own clock, including the rest at the
// end.
func TestWindowsCoverRun(t *testing.T) {
	for name, test := range map[string]struct {
		limit time.Duration
		end   bool
	}{
		"time is over":     {limit: 450 * time.Millisecond},
		"interrupted":      {end: true},
		"shorter than one": {limit: 30 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var got collected
			w := newTestWindows(t, time.Second, stackstest.Own(t), func(w Window) error {
				if test.end && len(got) == 1 {
					cancel()
				}
				return got.take(w)
			})
			w.every, w.run.loop.Limit = MinWindow, test.limit
			if err := w.run.measure(ctx, nil); err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 || test.end && len(got) < 2 {
				t.Fatalf("got %d windows, want more", len(got))
			}
			at := got[0].Profile.Meta.Start
			for i, window := range got {
				m := window.Profile.Meta
				if !m.Start.Equal(at) || window.Number != i+1 {
					t.Errorf("window %d: got number %d, and a start %s after the previous end; want no gap", i+1, window.Number, m.Start.Sub(at))
				}
				at = m.Start.Add(m.Duration)
				// Each window ends at the next beat or later.
				if beat := got[0].Profile.Meta.Start.Add(time.Duration(i+1) * w.every); i < len(got)-1 && at.Before(beat) {
					t.Errorf("window %d ends %s too early", i+1, beat.Sub(at))
				}
			}
			if end := w.run.loop.Start.Add(w.run.loop.Duration); !at.Equal(end) {
				t.Errorf("the last window ends %s after the measurement", at.Sub(end))
			}
		})
	}
}

// TestWindowDue tests when a window ends.
func TestWindowDue(t *testing.T) {
	end := time.Now()
	for name, test := range map[string]struct {
		at      time.Duration // after the planned end of the window
		left    time.Duration // of the run; 0 if it is unlimited
		waiting int64
		names   int
		want    bool
	}{
		"its time is over":                        {want: true},
		"not yet":                                 {at: -1},
		"the one before is being delivered":       {at: time.Hour, waiting: 1},
		"much is left":                            {left: time.Second, want: true},
		"a tenth of a window is left":             {left: 100 * time.Millisecond, want: true},
		"too little is left for another":          {left: 99 * time.Millisecond},
		"full":                                    {at: -time.Minute, names: maxStacks, want: true},
		"full, the one before is being delivered": {at: -time.Minute, names: maxStacks, waiting: 1, want: true},
		"nearly full":                             {at: -time.Minute, names: maxStacks - 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestWindows(t, time.Second, storeOfNames(t, test.names), nil)
			w.next = end
			now := end.Add(test.at)
			w.run.queue.waiting.Store(test.waiting)
			if test.left > 0 {
				w.run.loop.Start, w.run.loop.Limit = now.Add(-time.Minute), time.Minute+test.left
			}
			if got := w.due(now); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// storeOfNames returns a store with n names of one stack.
func storeOfNames(t *testing.T, n int) *stacks.Store {
	t.Helper()
	store := stacks.NewStore(stackstest.Layout{})
	record := stackstest.Trace{PID: 1, Kernel: []uint64{0xffff0000}, KernelEnd: stackstest.Ended}.Record(t)
	for id := range n {
		binary.NativeEndian.PutUint64(record[unsafe.Offsetof(bpf.StackRecord{}.Id):], uint64(id))
		if err := store.Add(record); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// A window that ends late does not delay the next ones.
func TestWindowsKeepBeat(t *testing.T) {
	var got collected
	w := newTestWindows(t, time.Second, stackstest.Own(t), got.take)
	w.every = time.Hour
	first := time.Now().Add(-150 * time.Minute)
	w.start, w.next = first.Add(-w.every), first
	if err := w.cut(); err != nil {
		t.Fatal(err)
	}
	if want := first.Add(3 * time.Hour); !w.next.Equal(want) {
		t.Errorf("the next window ends %s after the beat", w.next.Sub(want))
	}
	if err := (<-w.run.queue.items).do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lasted := got[0].Profile.Meta.Duration; w.start.Before(first) || lasted < 3*time.Hour {
		t.Errorf("got a window of %s, and a next one that begins at %s", lasted, w.start)
	}
}

// held is a source with pending stacks.
type held struct {
	source.Source
	ids []uint64
	err error
}

func (h *held) Pending() ([]uint64, error) { return h.ids, h.err }

// Stacks that are pending at the end of a window are kept for the next one, for all
// sources.
func TestWindowsPending(t *testing.T) {
	a, b := &held{ids: []uint64{1, 2}}, &held{ids: []uint64{3}}
	w := newTestWindows(t, time.Second, stackstest.Own(t), nil)
	w.run.sources = []source.Source{a, b}
	defer func() { w.run.sources = nil }()
	if ids, err := w.pending(); err != nil || !slices.Equal(ids, []uint64{1, 2, 3}) {
		t.Errorf("got pending %v, %v; want 1 to 3", ids, err)
	}
	b.err = errors.New("gone")
	if _, err := w.pending(); !errors.Is(err, b.err) {
		t.Errorf("got error %v, want %v", err, b.err)
	}
}

// waiting is a counting source with a stack that is pending at the end of each window.
type waiting struct {
	*counting
	id *uint64
}

func (s waiting) Pending() ([]uint64, error) { return []uint64{*s.id}, nil }

// A stack that is pending at the end of a window may be known only from the previous one. The
// closed window then gets its frames, too, and they need names.
func TestWindowsPendingFromBefore(t *testing.T) {
	var got collected
	w := newTestWindows(t, time.Second, stackstest.Own(t), got.take)
	begin, none := time.Now(), uint64(0)
	w.start = begin
	for i, id := range []uint64{none, 1, 1} {
		w.run.sources = []source.Source{waiting{newCounting(1, 0), &id}}
		err := w.closeAt(begin.Add(time.Duration(i+1) * time.Second))
		w.run.sources = nil
		if err != nil {
			t.Fatal(err)
		}
		if err := (<-w.run.queue.items).do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, kept := w.run.store.Find(1); len(got) != 3 || !kept {
		t.Errorf("got %d windows, and a pending stack that is kept: %t", len(got), kept)
	}
}

// Without windows, the whole run is one window, even with many stacks.
func TestWholeRun(t *testing.T) {
	var got collected
	w := newTestWindows(t, 0, storeOfNames(t, maxStacks), got.take)
	w.run.loop.Limit = 30 * time.Millisecond
	w.run.sources = []source.Source{newCounting(1, 5)}
	defer func() { w.run.sources = nil }()
	if w.due(time.Now().Add(time.Hour)) {
		t.Error("a window ends before the run")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run.queue.write(t.Context())
	}()
	w.start, w.run.loop.Start = w.run.loop.Start, time.Now()
	if err := w.finish(); err != nil {
		t.Fatal(err)
	}
	w.run.queue.end()
	testenv.Receive(t, done, "the writer does not end")
	if len(got) != 1 || got[0].Number != 1 || got[0].Profile.Total(0) != 5 || got[0].Timeline != nil {
		t.Errorf("got windows %+v, want one with all samples", got)
	}
	if w.run.loop.Due != nil {
		t.Error("a poll is due for a window")
	}
}

// A perf map that a program writes only at its end is found.
func TestWindowsFinishPerfMaps(t *testing.T) {
	w := newTestWindows(t, 0, stackstest.Own(t), new(collected).take)
	self := os.Getpid()
	path := fmt.Sprintf("/tmp/perf-%d.map", self)
	_ = os.Remove(path) // of an earlier process with this PID
	t.Cleanup(func() { _ = os.Remove(path) })
	w.run.tracker.Processes.Apply(perfevent.Comm{Stamp: perfevent.Stamp{Time: 1}, PID: self, Exec: true})
	w.run.tracker.Processes.Apply(perfevent.Mmap2{Stamp: perfevent.Stamp{Time: 2}, PID: self, Addr: 0x1000, Len: 0x1000, Filename: "//anon"})
	read := func() error {
		_, _, err := w.run.tracker.Processes.Resolve(self, 0x1000, 3).PerfMap.ReaderAt()
		return err
	}
	if err := read(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got error %v, want %v", err, fs.ErrNotExist)
	}
	w.run.tracker.Processes.FollowJIT() // limited in its rate
	if err := os.WriteFile(path, []byte("1000 10 compiled\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.finish(); err != nil {
		t.Fatal(err)
	}
	if err := read(); err != nil {
		t.Error(err)
	}
}

// Functions without names are counted once per window. Windows may share them, so there
// is no total.
func TestWindowsUnresolvedFrames(t *testing.T) {
	var got collected
	w := newTestWindows(t, time.Second, storeOfNames(t, 1), got.take)
	for range 2 {
		w.run.sources = []source.Source{newCounting(0, 1)}
		if err := w.closeAt(time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := (<-w.run.queue.items).do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.run.sources = nil
	for i, window := range got {
		if n := window.Profile.Losses[profile.LossUnresolvedFrames]; n != 1 {
			t.Errorf("window %d: got %d functions without names, want 1", i+1, n)
		}
	}
	if w.written.lost[profile.LossUnresolvedFrames] != 0 || w.written.lost[profile.LossUnresolved] != 2 {
		t.Errorf("all windows: got %+v, want no functions and 2 samples without names", w.written.lost)
	}
}

// steps is a source that records the steps at the end of a window.
type steps struct {
	source.Source
	name  string
	noted *[]string
}

func (s steps) step(name string) error {
	*s.noted = append(*s.noted, name+" "+s.name)
	return nil
}

var errRenew = errors.New("no new IDs")

func (s steps) BeginCut() error  { return s.step("begin") }
func (s steps) Cut(uint64) error { return s.step("cut") }
func (s steps) Renew() error     { return errors.Join(s.step("renew"), errRenew) }

// At the end of a window, all sources are cut together and then renew their stack IDs. If
// renewing fails, no data is read.
func TestWindowsCut(t *testing.T) {
	w := newTestWindows(t, time.Second, stackstest.Own(t), nil)
	var noted []string
	w.run.sources = []source.Source{steps{name: "a", noted: &noted}, steps{name: "b", noted: &noted}}
	defer func() { w.run.sources = nil }()
	if err := w.cut(); !errors.Is(err, errRenew) {
		t.Errorf("got error %v, want %v", err, errRenew)
	}
	if want := []string{"begin a", "begin b", "cut a", "cut b", "renew a", "renew b"}; !slices.Equal(noted, want) {
		t.Errorf("got steps %q, want %q", noted, want)
	}
}

// An error in writing the last window, after sampling, is returned.
func TestLastWriteFails(t *testing.T) {
	failure := errors.New("no room")
	w := newTestWindows(t, 0, stackstest.Own(t), func(Window) error { return failure })
	w.run.loop.Limit = time.Millisecond
	if err := w.run.measure(t.Context(), nil); !errors.Is(err, failure) {
		t.Errorf("got error %v, want %v", err, failure)
	}
}

// slow is a pipeline whose symbolization blocks until it is canceled.
type slow struct {
	pipeline
	queue *queue
	began func()
}

func (s slow) finish() error {
	s.queue.put(func(ctx context.Context) error {
		s.began()
		<-ctx.Done()
		return nil
	}, 1)
	return nil
}

// A signal after sampling ends symbolization. The signal that ended sampling does not.
func TestSkipNames(t *testing.T) {
	for name, interrupted := range map[string]bool{"time is over": false, "interrupted": true} {
		t.Run(name, func(t *testing.T) {
			ctx, first := context.WithCancel(t.Context())
			defer first()
			again, second := context.WithCancel(t.Context())
			defer second()
			w := newTestWindows(t, 0, stackstest.Own(t), nil)
			registered := make(chan struct{})
			w.run.options.Interruptible = func(ctx context.Context) (context.Context, func()) {
				if ctx.Err() != nil {
					t.Error("the signal that ended sampling canceled symbolization")
				}
				close(registered)
				return again, func() {}
			}
			s := slow{w, w.run.queue, first}
			if interrupted {
				first()
				s.began = func() {
					<-registered
					second()
				}
			} else {
				w.run.loop.Limit = time.Millisecond
			}
			w.run.pipeline = s
			done := make(chan error, 1)
			go func() { done <- w.run.measure(ctx, nil) }()
			if err := testenv.Receive(t, done, "symbolization has not ended"); err != nil {
				t.Error(err)
			}
		})
	}
}

// The kernel may delay the timers of a run, except of one that starts a command, which would
// inherit the slack.
func TestWindowsSlack(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	path := procfs.Path(os.Getpid(), "timerslack_ns")
	read := func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	before := read()
	ns, err := time.ParseDuration(before + "ns")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		scope target.Scope
		want  string
	}{{target.Command, before}, {target.System, strconv.FormatInt(slack.Nanoseconds(), 10)}} {
		w := newTestWindows(t, 0, stackstest.Own(t), nil)
		w.run.options.Target.Scope = test.scope
		if err := w.run.Enable(); err != nil {
			t.Fatal(err)
		}
		if got := read(); got != test.want {
			t.Errorf("%v: got a slack of %s ns, want %s", test.scope, got, test.want)
		}
	}
	if err := timerslack.Set(ns); err != nil {
		t.Error(err)
	}
}
