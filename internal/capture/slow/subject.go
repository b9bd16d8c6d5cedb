// Package slow measures what threads do in slow intervals, and in the others, with bpf/parts.h:
// they run, wait for a CPU, or wait for something else.
package slow

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/waits"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/sides"
)

// DefaultPendingEntries is the default of [latency.Config.PendingEntries]. A thread that has had an
// interval takes about 4 KB.
const DefaultPendingEntries = 1 << 12

// DefaultFrequency is the default of [Config.Frequency]: perf's tutorials have it, and it is odd to
// avoid lockstep with timers.
const DefaultFrequency = 99

// DefaultRows is the default of [Config.Rows].
const DefaultRows = 20

// Config configures [Subject].
type Config struct {
	latency.Config
	// Over, Slowest and Between choose the slow intervals; exactly one of them is set: those of at least a
	// time, the slowest share from 0 to 1, or those between two times.
	Over    time.Duration
	Slowest float64
	Between *Bounds
	// Rows is the number of slowest intervals to list, at most [latency.MaxRows]; 0 lists none.
	Rows int
	// WakerStacks shows the stacks of the threads that ended waits.
	WakerStacks bool
	// Frequency is the number of samples per second and CPU. 0 means the default.
	Frequency uint64
}

// Subject is what threads do in intervals. It implements [source.Subject].
type Subject struct {
	*latency.Subject
	config Config
	common source.Common
	on     *oncpu.Subject
	source *Source
	index  uint8 // of the source in the run
	// slowest are the slowest intervals of the last window.
	slowest []profile.SlowInterval
}

// New returns the subject for c.
func New(c Config) *Subject {
	if c.PendingEntries == 0 {
		c.PendingEntries = DefaultPendingEntries
	}
	if c.Frequency == 0 {
		c.Frequency = DefaultFrequency
	}
	return &Subject{Subject: latency.New(c.Config), config: c, on: oncpu.New(oncpu.Config{Event: "cpu-clock", Frequency: c.Frequency})}
}

// Command implements [source.Subject].
func (*Subject) Command() doctor.Command { return doctor.Slow }

// Complete implements [source.Subject].
func (m *Subject) Complete(c source.Common) error {
	m.common = c
	if err := m.config.check(); err != nil {
		return err
	}
	return errors.Join(m.Subject.Complete(c), m.on.Complete(c))
}

// check checks the options.
func (c *Config) check() error {
	chosen := 0
	for _, is := range []bool{c.Over != 0, c.Slowest != 0, c.Between != nil} {
		if is {
			chosen++
		}
	}
	switch {
	case chosen != 1:
		return usage.Errorf("say which intervals are slow with exactly one of %s, %s and %s", usage.Over, usage.Slowest, usage.Between)
	case c.Over < 0:
		return usage.Errorf("%s needs a time above 0", usage.Over)
	case c.Slowest < 0 || c.Slowest >= 1:
		return usage.Errorf("%s needs a share between 0 %% and 100 %%", usage.Slowest)
	case c.Between != nil && (c.Between.From <= 0 || c.Between.Until <= c.Between.From):
		return usage.Errorf("%s needs two times above 0, the shorter one first", usage.Between)
	case c.Rows < 0 || c.Rows > latency.MaxRows:
		return usage.Errorf("at most %d of the slowest intervals can be listed", latency.MaxRows)
	case c.Key != "" && c.Key != "tid":
		return usage.Errorf("intervals that are matched by a field belong to no thread that fulgur could follow: leave out %s, or measure their time with fulgur latency", usage.Key)
	case len(c.Events) > 1:
		return usage.Errorf("the intervals of one event are compared: choose one with %s; its name can be a pattern", usage.Event)
	}
	return nil
}

// bounds returns the bounds of slow intervals, zero if they depend on the intervals.
func (c *Config) bounds() Bounds {
	switch {
	case c.Over > 0:
		return Bounds{c.Over, forever}
	case c.Between != nil:
		return *c.Between
	}
	return Bounds{}
}

// Choose implements [source.Subject].
func (m *Subject) Choose() error { return errors.Join(m.Subject.Choose(), m.on.Choose()) }

// Load implements [source.Subject].
func (m *Subject) Load(common probe.Options) ([]source.Source, error) {
	m.index = common.Source
	s, err := m.LoadFollowing(common, latency.Follow{Rows: m.config.Rows, Wakers: m.config.WakerStacks})
	if err != nil {
		return nil, err
	}
	m.source = &Source{
		Source: s, slow: m.config.bounds(), share: m.config.Slowest,
		config: sampling.Config{Specs: m.on.Specs, Rate: sampling.Rate{Frequency: m.config.Frequency}},
	}
	return []source.Source{m.source}, nil
}

// details returns the set of details for which is returns true.
func details(is func(kind uint64, slow bool) bool) map[uint64]bool {
	set := map[uint64]bool{}
	for detail := range 2 * latency.Slow {
		if is(detail&^latency.Slow, detail&latency.Slow != 0) {
			set[detail] = true
		}
	}
	return set
}

// Values implements [source.Subject]. It returns the numbers of intervals, of all and of the slow ones, and
// the time of each side.
func (m *Subject) Values(*stacks.Store) []source.Value {
	count, time := [][]int{{latency.Intervals}}, [][]int{{latency.Time}}
	return []source.Value{
		{ValueType: sides.Intervals, Of: count, Details: details(func(kind uint64, _ bool) bool { return kind == latency.Running })},
		{ValueType: sides.SlowIntervals, Of: count, Details: details(func(kind uint64, slow bool) bool { return slow && kind == latency.Running })},
		{ValueType: sides.Others, Of: time, Details: details(func(_ uint64, slow bool) bool { return !slow })},
		{ValueType: sides.Slow, Of: time, Details: details(func(_ uint64, slow bool) bool { return slow })},
	}
}

// Shown returns the time of slow intervals.
func (*Subject) Shown() int { return 3 }

// Finish divides the running time among the samples.
func (m *Subject) Finish(store *stacks.Store) { divide(store, m.index) }

// Place implements [source.Subject].
func (m *Subject) Place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	leaf := p.Store.Traces[s.Trace].Leaf
	switch kind := s.Detail &^ latency.Slow; kind {
	case latency.Sample:
		return p.PlaceFrom(leaf, m.common.UserOnly)
	case latency.Wait, latency.Preempted:
		reason := waits.Of
		if kind == latency.Preempted {
			reason = waits.OfRunnable
		}
		stack := p.Mark(p.PlaceFrom(leaf, m.common.UserOnly), "["+string(offcpu.ReasonOf(p, s.Trace, reason))+"]")
		if s.Waker == 0 || kind == latency.Preempted {
			return stack
		}
		return p.UpsideDown(p.Mark(stack, profile.WokenBy), s.Waker-1, m.common.UserOnly)
	case latency.Woken:
		return p.Mark(p.PlaceFrom(leaf, m.common.UserOnly), sides.Runnable)
	case latency.Unkept:
		return p.Mark(m.begin(p, s), sides.Unkept)
	case latency.UnkeptWoken:
		return p.Mark(m.begin(p, s), sides.Runnable)
	}
	return p.Mark(m.begin(p, s), sides.Running)
}

// begin places the stack at the beginning of an interval.
func (m *Subject) begin(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	return p.PlaceFrom(p.WithoutProbe(p.Store.Traces[s.Trace].Leaf), m.common.UserOnly)
}

// Collect implements [source.Collector]: it adds the slowest intervals.
func (m *Subject) Collect(store *stacks.Store, meta *profile.Meta) error {
	rows, err := m.source.Slowest(m.config.Rows)
	if err != nil {
		return err
	}
	zero := time.Now().Add(-time.Duration(monotonic.Now())) // of CLOCK_MONOTONIC
	m.slowest = nil
	for _, r := range rows {
		i := profile.SlowInterval{
			Begin:  zero.Add(time.Duration(r.Since)),
			Length: time.Duration(r.Time), Running: time.Duration(r.Running), Runnable: time.Duration(r.Waiting),
			Slow: r.IsSlow(), PID: int(r.Pid), TID: int(r.Tid), Comm: unix.ByteSliceToString(r.Comm[:]), Fields: r.Fields,
		}
		if trace, ok := store.Trace(r.Id); ok {
			i.Fields = append(i.Fields, trace.Labels.List()...)
		}
		m.slowest = append(m.slowest, i)
	}
	m.slowest = profile.Slowest(m.slowest)
	meta.Slowest = m.slowest
	return nil
}

// WhyNothing implements [source.Subject].
func (m *Subject) WhyNothing() string {
	switch e, err := m.source.Excluded(); {
	case err != nil:
	case e.Undecided > 0:
		return plain.Count(e.Undecided, "interval") + " ended before it was known which are slow: measure longer, or use --over"
	case e.Moved+e.Unseen > 0:
		return "all intervals are on neither side"
	}
	return m.Subject.WhyNothing()
}

// Notes implements [source.Subject].
func (m *Subject) Notes(store *stacks.Store) []string {
	lines := append(m.Subject.Notes(nil), m.excluded(store)...)
	if table := sides.Lines(m.slowest); len(table) > 0 {
		lines = append(append(lines, ""), table...)
	}
	return lines
}

// excluded returns lines about the bounds, and about what is on neither side or has no stack.
func (m *Subject) excluded(store *stacks.Store) (lines []string) {
	e, err := m.source.Excluded()
	if err != nil {
		return []string{plain.Error(err)}
	}
	if m.config.Slowest > 0 && m.source.slow.From > 0 {
		lines = append(lines, fmt.Sprintf("slow at the end: %s or longer", describe.Quantity(int64(m.source.slow.From), "nanoseconds")))
	}
	for _, of := range []struct {
		n   uint64
		why string
	}{
		{e.Undecided, "ended before it was known which are slow"},
		{e.Moved, "ended in another thread than they began"},
		{e.Unseen, "had a switch of the thread that the kernel did not report"},
	} {
		if of.n > 0 {
			lines = append(lines, fmt.Sprintf("on neither side: %s that %s", plain.Count(of.n, "interval"), of.why))
		}
	}
	if e.Nested > 0 {
		lines = append(lines, fmt.Sprintf("%s in an interval of the same thread are a part of it", plain.Count(e.Nested, "call")))
	}
	var unkept stacks.Values
	for s, v := range store.Samples {
		if kind := s.Detail &^ latency.Slow; s.Source == m.index && (kind == latency.Unkept || kind == latency.UnkeptWoken) {
			unkept.Add(v)
		}
	}
	if unkept != (stacks.Values{}) {
		lines = append(lines, fmt.Sprintf("no room for the stacks of waits of %s, shown as %s: an interval can have %d different ones",
			time.Duration(unkept[latency.Time]).Round(time.Microsecond), strings.Trim(sides.Unkept, "[]"), latency.MaxParts))
	}
	return lines
}
