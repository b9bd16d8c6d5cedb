package session

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/unwinding"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// DefaultFrequency is bcc's: low, and odd so that it does not march in step
// with timers that fire at round rates.
const DefaultFrequency = 49

// minClockPeriod is the shortest period of a clock, in ns: perf_swevent_start_hrtimer
// of the kernel's kernel/events/core.c takes it for all that are shorter.
const minClockPeriod = 10_000

// onCPU is the subject of what runs on the processors.
type onCPU struct {
	options *ProfileOptions
	specs   []perfevent.Spec
}

func (*onCPU) command() doctor.Command { return doctor.Profile }

func (m *onCPU) complete() error {
	o := m.options
	if o.Frequency > 0 && o.Period > 0 {
		return usage.Errorf("a frequency and a period cannot be combined")
	}
	if o.Frequency == 0 && o.Period == 0 {
		o.Frequency = DefaultFrequency
	}
	if limit, err := perfevent.MaxSampleRate(); err == nil && o.Frequency > limit {
		return usage.Errorf("frequency %d Hz is above the kernel's limit of %d Hz; lower it, or raise sysctl kernel.perf_event_max_sample_rate", o.Frequency, limit)
	}
	if o.Event == "" {
		return nil
	}
	spec, err := perfevent.ParseEvent(o.Event)
	if err != nil {
		return usage.Errorf("%v", err)
	}
	m.specs = []perfevent.Spec{spec}
	return o.checkClock(spec)
}

// choose takes the machine's best event where none was asked for.
func (m *onCPU) choose() error {
	if len(m.specs) > 0 {
		return nil
	}
	specs, err := perfevent.DefaultEvents()
	if err != nil {
		return doctor.Explain(err, "choose an event")
	}
	m.specs = specs
	return m.options.checkClock(specs[0])
}

// checkClock refuses periods that a clock would not keep: its samples would
// still weigh what was asked for.
func (o *ProfileOptions) checkClock(spec perfevent.Spec) error {
	if !spec.IsTime() {
		return nil
	}
	if o.Period > 0 && o.Period < minClockPeriod {
		return usage.Errorf("period %d is below the minimum of %d ns for kernel timers: %s counts nanoseconds", o.Period, minClockPeriod, spec.Name)
	}
	if o.Frequency > 1e9/minClockPeriod {
		return usage.Errorf("frequency %d Hz is above the maximum of %d Hz for kernel timers (%s)", o.Frequency, uint64(1e9/minClockPeriod), spec.Name)
	}
	return nil
}

func (m *onCPU) load(common probe.Options) ([]source, error) {
	o := m.options
	s, err := oncpu.Load(oncpu.Options{
		Options:    common,
		SkipKernel: o.UserOnly,
		Idle:       o.Idle,
		Snapshots:  common.Tables != nil,
	})
	if err != nil {
		return nil, err
	}
	return []source{sampled{s, m}}, nil
}

// probe are the options of a family of probes. c is the open cgroup that is the
// target, if it is one, and u has the unwind tables.
func (o *Options) probe(c target.OpenedCgroup, u *unwinding.Unwinder, types *btf.Cache) probe.Options {
	return probe.Options{
		Unwind:       u.By,
		Tables:       u.Replacements(),
		Types:        types,
		MaxDepth:     o.MaxDepth,
		SkipUser:     o.KernelOnly,
		ByThread:     o.PerThread,
		ByCPU:        o.PerCPU,
		Scope:        o.Target.Scope,
		Cgroup:       c.FD,
		CgroupID:     c.ID,
		RingSize:     o.RingSize,
		CountEntries: o.CountEntries,
		SeenEntries:  o.SeenEntries,
	}
}

// sampled is a source that knows its events.
type sampled struct {
	*oncpu.Source
	subject *onCPU
}

func (s sampled) Attach(t target.Target) error {
	o := s.subject.options
	return s.Source.Attach(t, s.subject.specs, oncpu.Rate{Frequency: o.Frequency, Period: o.Period})
}

// valueTypes names the two values of a sample: how many there were, and the
// sum of their periods, which is time for clocks.
func (m *onCPU) valueTypes() []profile.ValueType {
	weight := profile.ValueType{Type: m.specs[0].Name, Unit: "count"}
	if m.specs[0].IsTime() {
		weight = profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
	}
	return []profile.ValueType{{Type: "samples", Unit: "count"}, weight}
}

func (*onCPU) shown() int { return 0 }

func (*onCPU) values(_ stacks.Source, v stacks.Value) []int64 {
	return []int64{int64(v.Samples), int64(v.Weights[0])}
}

func (*onCPU) place(p *naming.StackBuilder, s stacks.Sample) profile.StackID { return p.Trace(s.Trace) }

func (m *onCPU) describe(meta *profile.Meta) {
	meta.Event, meta.Frequency, meta.Period = m.specs[0].Name, m.options.Frequency, m.options.Period
}

// timelineSpec returns false if samples stand for no time: those of a fixed number of
// events.
func (m *onCPU) timelineSpec() (timelineSpec, bool) {
	var what timelineSpec
	switch period := int64(m.options.Period); {
	case m.options.Frequency > 0:
		what.interval = int64(time.Second) / int64(m.options.Frequency)
	case m.specs[0].IsTime():
		what.interval = period
	default:
		return what, false
	}
	if !m.specs[0].IsTime() {
		what.weight = what.interval
	}
	return what, true
}

func (*onCPU) notes(*stacks.Store) []string { return nil }

func (m *onCPU) whyNothing() string {
	o, event := m.options, m.specs[0]
	where := ""
	if len(o.Target.CPUs) > 0 {
		where = " on the chosen CPUs"
	}
	switch {
	case event.Type == unix.PERF_TYPE_SOFTWARE && !event.IsTime():
		return fmt.Sprintf("%s did not occur%s, or too rarely for a sample", event.Name, where)
	case o.Target.Scope == target.System && o.Idle:
		return "the measurement was shorter than " + m.interval()
	case o.Target.Scope == target.System:
		return fmt.Sprintf("nothing ran%s, or for less than %s; samples of idle CPUs are left out (-I includes them)", where, m.interval())
	}
	return fmt.Sprintf("the target did not run%s: it only waited, or ran for less than %s", where, m.interval())
}

// interval is the time between two samples, as far as it is known.
func (m *onCPU) interval() string {
	o, event := m.options, m.specs[0]
	if o.Period > 0 && !event.IsTime() {
		return fmt.Sprintf("the %d %s between two samples", o.Period, event.Name)
	}
	between := time.Duration(o.Period)
	if o.Frequency > 0 {
		between = time.Second / time.Duration(o.Frequency)
	}
	return fmt.Sprintf("the %s between two samples", between.Round(10*time.Microsecond))
}
