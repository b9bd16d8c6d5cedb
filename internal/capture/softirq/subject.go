package softirq

import (
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/doctor"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// Subject is the time in soft interrupts. It implements [source.Subject].
type Subject struct {
	common source.Common
	index  uint8 // index of the source in the run
}

// New returns the subject.
func New() *Subject { return new(Subject) }

// Command implements [source.Subject].
func (*Subject) Command() doctor.Command { return doctor.SoftIRQ }

// Complete implements [source.Subject].
func (m *Subject) Complete(c source.Common) error {
	m.common = c
	if len(c.Target.CPUs) > 0 {
		return usage.Errorf("soft interrupts are measured on all CPUs: separate the CPUs with %s", usage.PerCPU)
	}
	return nil
}

// Choose implements [source.Subject].
func (*Subject) Choose() error { return nil }

// Times returns false, because recordings do not support soft interrupts.
func (*Subject) Times() (source.Times, bool) { return source.Times{}, false }

// Load implements [source.Subject].
func (m *Subject) Load(common probe.Options) ([]source.Source, error) {
	m.index = common.Source
	s, err := Load(common)
	if err != nil {
		return nil, err
	}
	return []source.Source{s}, nil
}

// Indexes of this source's [stacks.Values].
const (
	Times    = iota // number of handler runs
	Duration        // total duration in ns
)

// Values implements [source.Subject].
func (*Subject) Values(*stacks.Store) []source.Value {
	return source.Own(
		profile.ValueType{Type: "softirqs", Unit: "count"},
		profile.ValueType{Type: "softirq-time", Unit: "nanoseconds"},
	)
}

// Shown implements [source.Subject].
func (*Subject) Shown() int { return Duration }

// Place adds the stack to the profile, with the vector on top, such as [NET_RX].
func (m *Subject) Place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	stack := p.PlaceFrom(p.WithoutProbe(p.Store.Traces[s.Trace].Leaf), m.common.UserOnly)
	return p.Mark(stack, "["+Vector(s.Detail).String()+"]")
}

// Describe implements [source.Subject].
func (*Subject) Describe(meta *profile.Meta) { meta.Event = "soft interrupts" }

// WhyNothing implements [source.Subject].
func (*Subject) WhyNothing() string { return "no soft interrupt ran while the target was on a CPU" }

// Notes returns a table of the vectors.
func (m *Subject) Notes(store *stacks.Store) []string {
	return source.Table(m, m.index, store, "vector", func(s stacks.Sample) string {
		return Vector(s.Detail).String()
	})
}
