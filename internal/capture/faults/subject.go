package faults

import (
	"errors"
	"fmt"
	"syscall"

	"fulgur/internal/capture/mounts"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
)

// Config configures [Subject].
type Config struct {
	// Period counts every Nth fault of each kind on each CPU, with weight N; 0 counts all.
	Period uint64
	// Offsets distinguishes the pages of files.
	Offsets bool
}

// Subject is page faults. It implements [source.Subject].
type Subject struct {
	Config
	source *Source
	index  uint8 // index of the source in the run
	mounts mounts.List
}

// New returns the subject for c.
func New(c Config) *Subject { return &Subject{Config: c} }

// Command implements [source.Subject].
func (*Subject) Command() doctor.Command { return doctor.Faults }

// Complete implements [source.Subject].
func (m *Subject) Complete(source.Common) error {
	m.Period = max(m.Period, 1)
	return nil
}

// Choose implements [source.Subject].
func (m *Subject) Choose() (err error) {
	m.mounts, err = procfs.Mounts()
	return err
}

// Times implements [source.Subject].
func (*Subject) Times() (source.Times, bool) { return source.Times{}, true }

// Load implements [source.Subject].
func (m *Subject) Load(common probe.Options) (_ []source.Source, err error) {
	// Timeline events have offsets anyway.
	m.Offsets = m.Offsets && !common.Timeline
	m.index = common.Source
	if m.source, err = Load(common, m.Config); err != nil {
		return nil, err
	}
	return []source.Source{m.source}, nil
}

// Indexes of this source's [stacks.Values].
const (
	Samples  = iota
	Minor    // faults
	Major    // faults
	Handling // ns; 0 if not measured
	Faults   // minor plus major
)

// Values implements [source.Subject]. It omits the handling time if that is not
// measured.
func (m *Subject) Values(*stacks.Store) []source.Value {
	values := source.Own(
		profile.ValueType{Type: "samples", Unit: "count"},
		profile.ValueType{Type: "minor-faults", Unit: "count"},
		profile.ValueType{Type: "major-faults", Unit: "count"},
		profile.ValueType{Type: "handling", Unit: "nanoseconds"},
		profile.ValueType{Type: "faults", Unit: "count"},
	)
	if m.source.Untimed() != nil {
		return append(values[:Handling], values[Faults])
	}
	return values
}

// Shown implements [source.Subject].
func (m *Subject) Shown() int { return len(m.Values(nil)) - 1 }

// Place adds the stack to the profile, with the file of the page on top.
func (m *Subject) Place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	note := "unknown page"
	page := ParseDetail(s.Detail)
	switch page.Kind {
	case Anonymous:
		note = "anonymous memory"
	case File:
		note = m.mounts.Name(p.Store, s.File)
		if m.Offsets {
			note += fmt.Sprintf("+%#x", page.Offset)
		}
	}
	return p.Mark(p.Trace(s.Trace), "["+note+"]")
}

// Describe implements [source.Subject].
func (m *Subject) Describe(meta *profile.Meta) {
	meta.Event, meta.Period = "page-faults", m.Period
}

// WhyNothing implements [source.Subject].
func (*Subject) WhyNothing() string { return "the target had no page faults" }

// Notes returns a table of files, and why times are unknown.
func (m *Subject) Notes(store *stacks.Store) []string {
	lines := source.ByFile(m, m.index, store, m.mounts)
	if err := m.source.Untimed(); err != nil {
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			err = errno
		}
		lines = append(lines, fmt.Sprintf("no fault latency: the kernel does not allow tracing of handle_mm_fault (%s)", plain.Error(err)))
	}
	return lines
}
