package session

import (
	"errors"
	"fmt"
	"slices"

	"fulgur/internal/capture/blockio"
	"fulgur/internal/capture/mounts"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/histogram"
)

// blockIO is the subject of which code asks disks for what.
type blockIO struct {
	options *BlockIOOptions
	source  *blockio.Source
	mounts  mounts.List
	cgroups *mounts.Cgroups
}

// blockIOValues are the values of a sample: how many requests there were, of how
// many bytes, for how long they waited for the device, for how long the device
// had them, and the sum of the two.
var blockIOValues = []profile.ValueType{
	{Type: "requests", Unit: "count"},
	{Type: "bytes", Unit: "bytes"},
	{Type: "queued", Unit: "nanoseconds"},
	{Type: "in-device", Unit: "nanoseconds"},
	{Type: "latency", Unit: "nanoseconds"},
}

func (*blockIO) command() doctor.Command { return doctor.BlockIO }

func (m *blockIO) complete() error {
	o := m.options
	if len(o.Target.CPUs) > 0 {
		return usage.Errorf("-C does not work with blockio: a request starts on one CPU and completes on another")
	}
	if o.Weight == "" {
		o.Weight = blockIOValues[len(blockIOValues)-1].Type
	}
	if m.shown() < 0 {
		return usage.Errorf("%q is not a value of disk requests: choose requests, bytes, queued, in-device or latency", o.Weight)
	}
	return completeSize("--pending-entries", &o.PendingEntries, blockio.DefaultPendingEntries, 1, maxEntries)
}

func (m *blockIO) choose() (err error) {
	m.mounts, err = procfs.Mounts()
	m.cgroups = mounts.NewCgroups(m.mounts)
	return err
}

func (m *blockIO) load(common probe.Options) (_ []source, err error) {
	o := m.options
	if m.source, err = blockio.Load(blockio.Options{
		Options:        common,
		QueueInLatency: o.QueueInLatency,
		PendingEntries: o.PendingEntries,
	}); err != nil {
		return nil, err
	}
	return []source{m.source}, nil
}

func (*blockIO) valueTypes() []profile.ValueType { return blockIOValues }

func (m *blockIO) shown() int {
	return slices.IndexFunc(blockIOValues, func(v profile.ValueType) bool { return v.Type == m.options.Weight })
}

func (*blockIO) values(_ stacks.Source, v stacks.Value) []int64 {
	bytes, queued, inDevice := int64(v.Weights[0]), int64(v.Weights[1]), int64(v.Weights[2])
	return []int64{int64(v.Samples), bytes, queued, inDevice, queued + inDevice}
}

// place puts the stack of a request into the profile, with the file that it is for
// if that is known, and with what it asked for and of which disk on top. What the
// kernel writes back later is said to be so, and of which control group it is where
// the kernel keeps that: who made the data is not who writes it.
func (m *blockIO) place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	stack := p.PlaceFrom(p.WithoutProbe(p.Store.Traces[s.Trace].Leaf), m.options.UserOnly)
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
	request := blockio.ParseDetail(s.Detail)
	return p.Mark(stack, fmt.Sprintf("[%s %s]", request.Device, request.Operation))
}

func (*blockIO) timelineSpec() (timelineSpec, bool) { return timelineSpec{}, true }

func (m *blockIO) describe(meta *profile.Meta) {
	meta.Event, meta.Value = "block I/O", m.options.Weight
}

func (*blockIO) whyNothing() string {
	return "the target made no disk requests: its reads came from the page cache, and the kernel may write its data back later"
}

// notes are a table of files, how many requests were not what they seem, and
// histograms of how long they took, for each device and operation.
func (m *blockIO) notes(store *stacks.Store) []string {
	lines := byFile(m, stacks.BlockIO, store, m.mounts)
	merged, errMerged := m.source.Merged()
	unfinished, errUnfinished := m.source.Unfinished()
	histograms, err := m.source.Histograms()
	if err := errors.Join(err, errMerged, errUnfinished); err != nil {
		return append(lines, plain.Error(err))
	}
	if merged > 0 {
		lines = append(lines, fmt.Sprintf("%d requests were merged into others, whose bytes include theirs", merged))
	}
	if unfinished > 0 {
		lines = append(lines, fmt.Sprintf("%d requests did not complete in time; they count without their time in the device", unfinished))
	}
	what := "in the device"
	if m.options.QueueInLatency {
		what = "in the queue and the device"
	}
	for _, h := range histograms {
		if drawn := histogram.Lines("usecs", h.Slots); len(drawn) > 0 {
			lines = append(lines, fmt.Sprintf("%s %s, time %s", h.Device, h.Operation, what))
			lines = append(lines, drawn...)
		}
	}
	return lines
}
