package alloc

import (
	"fmt"
	"slices"
	"strings"

	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/doctor"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// DefaultPendingEntries is the default of [Config.PendingEntries].
const DefaultPendingEntries = 1 << 16

// Config configures [Subject].
type Config struct {
	// Rate is the number of bytes between two samples, on average. 1 samples every
	// allocation; 0 means [DefaultRate].
	Rate uint32
	// Live shows memory that was allocated and not freed.
	Live bool
	// MaxOverhead ends the measurement if uprobes take more of the target's CPU time, as a
	// share from 0 to 1; 0 means [DefaultOverhead].
	MaxOverhead float64
	// NoProbes measures functions even if a program reports samples of its own by probes.
	NoProbes bool
	// PendingEntries limits the sampled allocations that are followed until they are
	// freed; 0 means the default.
	PendingEntries uint32
}

// Subject is allocations of memory. It implements [source.Subject].
type Subject struct {
	Config
	common source.Common
	source *Source
}

// New returns the subject for c.
func New(c Config) *Subject { return &Subject{Config: c} }

// Command implements [source.Subject].
func (*Subject) Command() doctor.Command { return doctor.Alloc }

// Complete implements [source.Subject].
func (m *Subject) Complete(c source.Common) error {
	m.common = c
	if m.Rate == 0 {
		m.Rate = DefaultRate
	}
	if m.MaxOverhead == 0 {
		m.MaxOverhead = DefaultOverhead
	}
	if len(c.Target.CPUs) > 0 {
		return usage.Errorf("allocations are measured on all CPUs: separate the CPUs with %s", usage.PerCPU)
	}
	return probe.CompleteSize(usage.PendingEntries, &m.PendingEntries, DefaultPendingEntries, 1, probe.MaxEntries)
}

// Choose implements [source.Subject]. Allocators are found later, when files are mapped.
func (*Subject) Choose() error { return uprobe.CheckPrivileges() }

// Times returns false, because recordings do not support allocations.
func (*Subject) Times() (source.Times, bool) { return source.Times{}, false }

// Load implements [source.Subject].
func (m *Subject) Load(common probe.Options) ([]source.Source, error) {
	s, err := Load(common, m.Config)
	if err != nil {
		return nil, err
	}
	m.source = s
	return []source.Source{s}, nil
}

// Indexes of this source's [stacks.Values]. Frees subtract from the last two, modulo 2^64.
const (
	Objects = iota
	Bytes
	LiveObjects
	LiveBytes
)

// Values returns the values of heap profiles, with the names that go tool pprof knows.
func (m *Subject) Values(*stacks.Store) []source.Value {
	types := []profile.ValueType{{Type: "alloc_objects", Unit: "count"}, {Type: "alloc_space", Unit: "bytes"}}
	if m.Live {
		types = append(types, profile.ValueType{Type: "inuse_objects", Unit: "count"}, profile.ValueType{Type: "inuse_space", Unit: "bytes"})
	}
	return source.Own(types...)
}

// Shown returns the bytes.
func (m *Subject) Shown() int {
	if m.Live {
		return LiveBytes
	}
	return Bytes
}

// Place adds the stack to the profile.
func (m *Subject) Place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	return attach.Place(p, s, "", m.common.UserOnly)
}

// Describe implements [source.Subject].
func (m *Subject) Describe(meta *profile.Meta) {
	meta.Event = "allocations"
	if m.source == nil || len(m.source.probed.names) == 0 { // otherwise programs choose the rate
		meta.Period = uint64(m.Rate)
	}
}

// WhyNothing implements [source.Subject].
func (m *Subject) WhyNothing() string {
	if f := m.source.files; len(f.attached) == 0 {
		why := "no allocator was found in the files of the target: programs that are linked statically need symbols"
		if len(f.unread) > 0 {
			why += ", and some files could not be read: " + plain.Terminal(list(f.unread))
		}
		return why
	}
	if len(m.source.probed.names) == len(m.source.files.attached) {
		return fmt.Sprintf("the target reported no samples by its %s probes: its own sampling may be off; try %s", provider, usage.NoProbes)
	}
	if m.Rate > 1 {
		return "the target allocated nothing, or too little for a sample: choose a smaller rate"
	}
	return "the target allocated nothing"
}

// Notes returns the measured allocators, and the overhead.
func (m *Subject) Notes(*stacks.Store) []string {
	var lines []string
	f, o := m.source.files, m.source.overhead
	if len(f.attached) > 0 {
		lines = append(lines, plain.Terminal("allocators: "+list(f.attached)))
	}
	if names := m.source.probed.names; len(names) > 0 {
		lines = append(lines, plain.Terminal(fmt.Sprintf("sampled by the program itself (%s), at its own rate: %s", provider, list(names))))
	}
	if len(f.late) > 0 {
		lines = append(lines, plain.Terminal("mapped during the measurement, so the first allocations can be missing: "+list(f.late)))
	}
	for _, line := range f.refused {
		lines = append(lines, plain.Terminal(line))
	}
	if line := o.note(); line != "" {
		lines = append(lines, line)
	}
	return lines
}

// maxListed is the maximum number of files in a line.
const maxListed = 8

// list formats the names of files, each once.
func list(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	more := len(names) - maxListed
	if more > 0 {
		names = names[:maxListed]
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
