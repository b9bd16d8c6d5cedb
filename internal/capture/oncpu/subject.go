package oncpu

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/events"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// DefaultFrequency is bcc's default. It is low, and odd to avoid lockstep with
// timers of round rates.
const DefaultFrequency = 49

// minClockPeriod is the shortest period of a clock, in ns.
// perf_swevent_start_hrtimer in the kernel's kernel/events/core.c raises shorter
// periods to it.
const minClockPeriod = 10_000

// Config configures [Subject].
type Config struct {
	// Event names the sampled event; empty means hardware cycles if there is a
	// PMU, else cpu-clock.
	Event string
	// Frequency is in samples per second and CPU, Period in events between
	// samples. At least one of them is 0. If both are, the default frequency
	// applies.
	Frequency, Period uint64
	// Idle includes samples of idle CPUs.
	Idle bool
	// Parallelism adds the value [Elapsed], for clocks only. If no event is named, the event is
	// cpu-clock.
	Parallelism bool
}

// Subject is code on the CPUs. It implements [source.Subject].
type Subject struct {
	Config
	// Specs are the sampled events, set by [Subject.Choose]. A hybrid machine
	// has several, one per kind of core.
	Specs  []perfevent.Spec
	common source.Common
}

// New returns the subject for c.
func New(c Config) *Subject { return &Subject{Config: c} }

// Command implements [source.Subject].
func (*Subject) Command() doctor.Command { return doctor.Profile }

// Complete implements [source.Subject].
func (m *Subject) Complete(c source.Common) error {
	m.common = c
	if m.Frequency > 0 && m.Period > 0 {
		return usage.Errorf("a frequency and a period cannot be combined")
	}
	if m.Frequency == 0 && m.Period == 0 {
		m.Frequency = DefaultFrequency
	}
	if limit, err := perfevent.MaxSampleRate(); err == nil && m.Frequency > limit {
		return usage.Errorf("frequency %d Hz is above the kernel's limit of %d Hz; lower it, or raise sysctl kernel.perf_event_max_sample_rate", m.Frequency, limit)
	}
	if m.Parallelism && m.Idle {
		return usage.Errorf("the number of running threads and idle CPUs cannot be combined: an idle CPU runs no thread")
	}
	if m.Parallelism && m.Event == "" {
		m.Event = "cpu-clock" // cycles are not time
	}
	if m.Event == "" {
		return nil
	}
	spec, err := perfevent.ParseEvent(m.Event)
	if err != nil && events.IsEvent(m.Event) {
		return usage.Errorf("%s is an event to count, not to sample: fulgur count -e '%s'", m.Event, m.Event)
	}
	if err != nil {
		return usage.Errorf("%v", err)
	}
	if m.Parallelism && !spec.IsTime() {
		return usage.Errorf("elapsed time needs a clock, but %s is not one: use cpu-clock or task-clock", spec.Name)
	}
	m.Specs = []perfevent.Spec{spec}
	return m.checkClock(spec)
}

// Choose selects the machine's best event if none was requested.
func (m *Subject) Choose() error {
	if len(m.Specs) > 0 {
		return nil
	}
	specs, err := perfevent.DefaultEvents()
	if err != nil {
		return doctor.Explain(err, "choosing an event")
	}
	m.Specs = specs
	return m.checkClock(specs[0])
}

// checkClock rejects periods shorter than the clock's minimum: each sample would
// still count with the requested period.
func (m *Subject) checkClock(spec perfevent.Spec) error {
	if !spec.IsTime() {
		return nil
	}
	if m.Period > 0 && m.Period < minClockPeriod {
		return usage.Errorf("period %d is below the minimum of %d ns for kernel timers: %s counts nanoseconds", m.Period, minClockPeriod, spec.Name)
	}
	if m.Frequency > 1e9/minClockPeriod {
		return usage.Errorf("frequency %d Hz is above the maximum of %d Hz for kernel timers (%s)", m.Frequency, uint64(1e9/minClockPeriod), spec.Name)
	}
	return nil
}

// Times returns false for samples that do not represent time, but a fixed number
// of events, and for samples with two times.
func (m *Subject) Times() (source.Times, bool) {
	line := source.Times{Interval: int64(m.Between())}
	if line.Interval == 0 || m.Parallelism {
		return line, false
	}
	if !m.Specs[0].IsTime() {
		line.Sampled = m.weight()
	}
	return line, true
}

// Load implements [source.Subject].
func (m *Subject) Load(common probe.Options) ([]source.Source, error) {
	s, err := Load(Options{
		Options:     common,
		Idle:        m.Idle,
		Parallelism: m.Parallelism,
		Specs:       m.Specs,
		Rate:        Rate{Frequency: m.Frequency, Period: m.Period},
	})
	if err != nil {
		return nil, err
	}
	return []source.Source{s}, nil
}

// Indexes of this source's [stacks.Values].
const (
	Samples = iota
	Weight  // sum of the samples' periods: ns for clocks, else events
	Elapsed // the same, each divided by the number of threads of the target that ran, with parallelism
)

// Values implements [source.Subject].
func (m *Subject) Values(*stacks.Store) []source.Value {
	values := source.Own(profile.ValueType{Type: "samples", Unit: "count"}, m.weight(), profile.ElapsedTime)
	if !m.Parallelism {
		return values[:Elapsed]
	}
	return values
}

// weight returns the value that the periods of samples add up to.
func (m *Subject) weight() profile.ValueType {
	if m.Specs[0].IsTime() {
		return profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
	}
	return profile.ValueType{Type: m.Specs[0].Name, Unit: "count"}
}

// Shown implements [source.Subject].
func (m *Subject) Shown() int {
	if m.Parallelism {
		return Elapsed
	}
	return Samples
}

// Place implements [source.Subject].
func (*Subject) Place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	return p.Trace(s.Trace)
}

// Describe implements [source.Subject].
func (m *Subject) Describe(meta *profile.Meta) {
	meta.Event, meta.Frequency, meta.Period = m.Specs[0].Name, m.Frequency, m.Period
}

// Notes implements [source.Subject]. It says how parallel the target was.
func (m *Subject) Notes(store *stacks.Store) []string {
	var sum stacks.Values
	for _, v := range store.Samples {
		sum.Add(v)
	}
	if sum[Elapsed] == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%.2f threads ran at once on average, while any ran", float64(sum[Weight])/float64(sum[Elapsed]))}
}

// WhyNothing implements [source.Subject].
func (m *Subject) WhyNothing() string {
	of, event := m.common.Target, m.Specs[0]
	where := ""
	if len(of.CPUs) > 0 {
		where = " on the chosen CPUs"
	}
	switch {
	case event.Type == unix.PERF_TYPE_SOFTWARE && !event.IsTime():
		return fmt.Sprintf("%s did not occur%s, or too rarely for a sample", event.Name, where)
	case of.Scope == target.System && m.Idle:
		return "the measurement was shorter than " + m.interval()
	case of.Scope == target.System:
		return fmt.Sprintf("nothing ran%s, or only for less than %s; samples of idle CPUs are left out (%s includes them)", where, m.interval(), usage.IncludeIdle)
	}
	return fmt.Sprintf("the target did not run%s: it only waited, or ran for less than %s", where, m.interval())
}

// Between returns the CPU time between two samples, 0 if they are not taken by time.
func (m *Subject) Between() time.Duration {
	switch {
	case m.Frequency > 0:
		return time.Second / time.Duration(m.Frequency)
	case m.Specs[0].IsTime():
		return time.Duration(m.Period)
	}
	return 0
}

// interval describes the time between two samples, as far as known.
func (m *Subject) interval() string {
	event := m.Specs[0]
	if m.Period > 0 && !event.IsTime() {
		return fmt.Sprintf("the %d %s between two samples", m.Period, event.Name)
	}
	return fmt.Sprintf("the %s between two samples", m.Between().Round(10*time.Microsecond))
}
