package session

import (
	"errors"
	"fmt"
	"syscall"

	"fulgur/internal/capture/faults"
	"fulgur/internal/capture/mounts"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// pageFaults is the subject of which code touches pages that are not there.
type pageFaults struct {
	options *FaultOptions
	source  *faults.Source
	offsets bool // pages of files are told apart
	mounts  mounts.List
}

func (*pageFaults) command() doctor.Command { return doctor.Faults }

func (m *pageFaults) complete() error {
	m.options.Period = max(m.options.Period, 1)
	return nil
}

func (m *pageFaults) choose() (err error) {
	m.mounts, err = procfs.Mounts()
	return err
}

func (m *pageFaults) load(common probe.Options) (_ []source, err error) {
	o := m.options
	// Events of a timeline have offsets anyhow.
	m.offsets = o.Offsets && !common.Timeline
	if m.source, err = faults.Load(faults.Options{Options: common, SkipKernel: o.UserOnly, Period: o.Period, ByPage: m.offsets}); err != nil {
		return nil, err
	}
	return []source{m.source}, nil
}

// valueTypes names the values of a sample: how many there were, how many faults of
// each kind they stand for, how long these took where that is known, and how many
// they are.
func (m *pageFaults) valueTypes() []profile.ValueType {
	types := []profile.ValueType{
		{Type: "samples", Unit: "count"},
		{Type: "minor-faults", Unit: "count"},
		{Type: "major-faults", Unit: "count"},
	}
	if m.timed() {
		types = append(types, profile.ValueType{Type: "handling", Unit: "nanoseconds"})
	}
	return append(types, profile.ValueType{Type: "faults", Unit: "count"})
}

func (m *pageFaults) shown() int { return len(m.valueTypes()) - 1 }

func (m *pageFaults) values(_ stacks.Source, v stacks.Value) []int64 {
	minor, major := int64(v.Weights[0]), int64(v.Weights[1])
	values := []int64{int64(v.Samples), minor, major}
	if m.timed() {
		values = append(values, int64(v.Weights[2]))
	}
	return append(values, minor+major)
}

func (m *pageFaults) timed() bool { return m.source.Untimed() == nil }

// place puts the stack into the profile, with what the page is of on top.
func (m *pageFaults) place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	note := "unmapped"
	page := faults.ParseDetail(s.Detail)
	switch page.Kind {
	case faults.Anonymous:
		note = "anonymous memory"
	case faults.File:
		note = m.mounts.Name(p.Store, s.File)
		if m.offsets {
			note += fmt.Sprintf("+%#x", page.Offset)
		}
	}
	return p.Mark(p.Trace(s.Trace), "["+note+"]")
}

func (*pageFaults) timelineSpec() (timelineSpec, bool) { return timelineSpec{}, true }

func (m *pageFaults) describe(meta *profile.Meta) {
	meta.Event, meta.Period = "page-faults", m.options.Period
}

func (*pageFaults) whyNothing() string { return "the target had no page faults" }

// notes are a table of files, and why times are unknown.
func (m *pageFaults) notes(store *stacks.Store) []string {
	lines := byFile(m, stacks.Faults, store, m.mounts)
	if err := m.source.Untimed(); err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			err = errno
		}
		lines = append(lines, fmt.Sprintf("no fault latency: the kernel does not allow tracing of handle_mm_fault (%s)", plain.Error(err)))
	}
	return lines
}
