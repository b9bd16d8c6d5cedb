package blockio

import (
	"errors"
	"fmt"
	"slices"

	"fulgur/internal/capture/mounts"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/containers"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// Config configures [Subject].
type Config struct {
	// Weight names the value that outputs show; empty means latency.
	Weight string
	// QueueInLatency includes the time before the device gets a request in the
	// histograms.
	QueueInLatency bool
	// PendingEntries limits the requests in flight to track; 0 means the
	// default.
	PendingEntries uint32
}

// Subject is disk requests. It implements [source.Subject].
type Subject struct {
	Config
	common  source.Common
	source  *Source
	index   uint8 // index of the source in the run
	mounts  mounts.List
	cgroups *containers.Cgroups
}

// New returns the subject for c.
func New(c Config) *Subject { return &Subject{Config: c} }

// Command implements [source.Subject].
func (*Subject) Command() doctor.Command { return doctor.BlockIO }

// Complete implements [source.Subject].
func (m *Subject) Complete(c source.Common) error {
	m.common = c
	if len(c.Target.CPUs) > 0 {
		return usage.Errorf("%s does not work with disk requests: a request starts on one CPU and completes on another", usage.CPUs)
	}
	if m.Weight == "" {
		m.Weight = m.Values(nil)[Latency].Type
	}
	if m.Shown() < 0 {
		return usage.Errorf("%q is not a value of disk requests: choose requests, bytes, queued, in-device or latency", m.Weight)
	}
	return probe.CompleteSize(usage.PendingEntries, &m.PendingEntries, DefaultPendingEntries, 1, probe.MaxEntries)
}

// Choose implements [source.Subject].
func (m *Subject) Choose() (err error) {
	m.mounts, err = procfs.Mounts()
	m.cgroups = containers.NewCgroups(m.mounts)
	return err
}

// Times implements [source.Subject].
func (*Subject) Times() (source.Times, bool) { return source.Times{}, true }

// Load implements [source.Subject].
func (m *Subject) Load(common probe.Options) (_ []source.Source, err error) {
	m.index = common.Source
	if m.source, err = Load(common, m.Config); err != nil {
		return nil, err
	}
	return []source.Source{m.source}, nil
}

// Indexes of this source's [stacks.Values].
const (
	Requests = iota
	Bytes
	Queued   // ns until the device gets the request
	InDevice // ns from then until completion
	Latency  // sum of the two
)

// Values implements [source.Subject].
func (*Subject) Values(*stacks.Store) []source.Value {
	return source.Own(
		profile.ValueType{Type: "requests", Unit: "count"},
		profile.ValueType{Type: "bytes", Unit: "bytes"},
		profile.ValueType{Type: "queued", Unit: "nanoseconds"},
		profile.ValueType{Type: "in-device", Unit: "nanoseconds"},
		profile.ValueType{Type: "latency", Unit: "nanoseconds"},
	)
}

// Shown implements [source.Subject].
func (m *Subject) Shown() int {
	return slices.IndexFunc(m.Values(nil), func(v source.Value) bool { return v.Type == m.Weight })
}

// Place adds the stack of a request to the profile, with the file if known, the disk
// and the operation on top. Writeback is marked, because the thread that writes the
// data is not the thread that made it. The mark has the control group if the kernel
// knows it.
func (m *Subject) Place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	stack := p.PlaceFrom(p.WithoutProbe(p.Store.Traces[s.Trace].Leaf), m.common.UserOnly)
	if p.IsWriteback(s.Trace) {
		note := "[writeback]"
		if name := m.cgroups.Name(s.Cgroup); name != "" {
			note = "[writeback for " + name + "]"
		}
		stack = p.Mark(stack, note)
	}
	if s.File != 0 {
		stack = p.Mark(stack, "["+m.mounts.Name(p.Store, s.File)+"]")
	}
	request := ParseDetail(s.Detail)
	return p.Mark(stack, fmt.Sprintf("[%s %s]", request.Device, request.Operation))
}

// Describe implements [source.Subject].
func (*Subject) Describe(meta *profile.Meta) { meta.Event = "block I/O" }

// WhyNothing implements [source.Subject].
func (*Subject) WhyNothing() string {
	return "the target made no disk requests: its reads came from the page cache, and the kernel may write its data back later"
}

// Notes returns a table of files, the numbers of merged and unfinished requests, and
// the distribution of the times of each device and operation.
func (m *Subject) Notes(store *stacks.Store) []string {
	lines := source.ByFile(m, m.index, store, m.mounts)
	merged, errMerged := m.source.Merged()
	unfinished, errUnfinished := m.source.Unfinished()
	unplaced, errUnplaced := m.source.Unplaced()
	distributions, err := m.source.Distributions()
	if err := errors.Join(err, errMerged, errUnfinished, errUnplaced); err != nil {
		return append(lines, plain.Error(err))
	}
	if merged > 0 {
		lines = append(lines, plain.Count(merged, "request")+" merged into others, which include the bytes")
	}
	if unfinished > 0 {
		lines = append(lines, plain.Count(unfinished, "request")+" had not completed at the end: counted without time in the device")
	}
	what := "in the device"
	if m.QueueInLatency {
		what = "in the queue and the device"
	}
	for _, d := range distributions {
		if drawn := d.Times.Lines(); len(drawn) > 0 {
			lines = append(lines, fmt.Sprintf("%s %s, time %s", d.Device, d.Operation, what))
			lines = append(lines, drawn...)
		}
	}
	if unplaced > 0 {
		lines = append(lines, plain.Count(unplaced, "request")+" of further disks and operations in no histogram")
	}
	return lines
}
