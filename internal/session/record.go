package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/doctor"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// DefaultRecordFrequency is about that of samply, and odd.
const DefaultRecordFrequency = 999

// RecordOptions describe one recording of what threads do and wait for.
type RecordOptions struct {
	Options
	// Frequency is in samples a second for each CPU; 0 takes the default.
	Frequency uint64
	// NoCPU, NoOffCPU, NoBlockIO and NoFaults leave something out.
	NoCPU, NoOffCPU, NoBlockIO, NoFaults bool
	// Shortest is the least time off the CPU that counts.
	Shortest time.Duration
	// WakerStacks keeps where whoever ended a wait was.
	WakerStacks bool
	// FaultPeriod records every Nth page fault; 0 records each.
	FaultPeriod uint64
	// Value names the value that outputs show which have room for one; empty takes
	// the first.
	Value string
}

// Record records what threads do and what they wait for, and writes what it saw, as
// [measure] does.
func Record(ctx context.Context, o RecordOptions) (exitCode int, err error) {
	return measure(ctx, &recording{options: &o}, &o.Options)
}

// recording is the subject of all that threads do.
type recording struct {
	options *RecordOptions
	parts   []part
}

// part is a subject as a part of a recording.
type part struct {
	subject
	source stacks.Source
	// types are the values that it adds to those of a recording, and of returns
	// them.
	types []profile.ValueType
	of    func(stacks.Value) []int64
}

func (*recording) command() doctor.Command { return doctor.Record }

func (m *recording) complete() error {
	o := m.options
	for _, p := range []struct {
		part
		leftOut bool
	}{
		{part{
			&onCPU{options: &ProfileOptions{Options: o.Options, Event: "cpu-clock", Frequency: cmp.Or(o.Frequency, DefaultRecordFrequency)}},
			stacks.OnCPU,
			[]profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}},
			func(v stacks.Value) []int64 { return []int64{int64(v.Weights[0])} },
		}, o.NoCPU},
		{part{
			&offCPU{options: &OffCPUOptions{Options: o.Options, Shortest: o.Shortest, WakerStacks: o.WakerStacks}},
			stacks.OffCPU,
			[]profile.ValueType{{Type: "off-cpu", Unit: "nanoseconds"}},
			func(v stacks.Value) []int64 { return []int64{int64(v.Weights[1] + v.Weights[2])} },
		}, o.NoOffCPU},
		{part{
			&blockIO{options: &BlockIOOptions{Options: o.Options}},
			stacks.BlockIO,
			[]profile.ValueType{{Type: "block-io", Unit: "bytes"}, {Type: "block-io-time", Unit: "nanoseconds"}},
			func(v stacks.Value) []int64 {
				return []int64{int64(v.Weights[0]), int64(v.Weights[1] + v.Weights[2])}
			},
		}, o.NoBlockIO},
		{part{
			&pageFaults{options: &FaultOptions{Options: o.Options, Period: o.FaultPeriod}},
			stacks.Faults,
			[]profile.ValueType{{Type: "faults", Unit: "count"}},
			func(v stacks.Value) []int64 { return []int64{int64(v.Weights[0] + v.Weights[1])} },
		}, o.NoFaults},
	} {
		if !p.leftOut {
			m.parts = append(m.parts, p.part)
		}
	}
	if len(m.parts) == 0 {
		return usage.Errorf("nothing left to record")
	}
	if m.shown() < 0 {
		return usage.Errorf("no value %q; the recording has %s", o.Value, m.typeNames())
	}
	return m.each(subject.complete)
}

// each calls f for all parts.
func (m *recording) each(f func(subject) error) error {
	var errs []error
	for _, p := range m.parts {
		errs = append(errs, f(p.subject))
	}
	return errors.Join(errs...)
}

func (m *recording) choose() error { return m.each(subject.choose) }

func (m *recording) load(common probe.Options) (all []source, err error) {
	for _, p := range m.parts {
		own := common
		if m.options.hasTimes() && (p.source == stacks.OnCPU || p.source == stacks.BlockIO) {
			own.RingSize /= 8 // what comes of these is little
		}
		sources, err := p.load(own)
		all = append(all, sources...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// valueTypes are how many samples, waits, requests and faults there were, and the
// values of each part.
func (m *recording) valueTypes() []profile.ValueType {
	types := []profile.ValueType{{Type: "samples", Unit: "count"}}
	for _, p := range m.parts {
		types = append(types, p.types...)
	}
	return types
}

func (m *recording) typeNames() string {
	var names []string
	for _, v := range m.valueTypes() {
		names = append(names, v.Type)
	}
	return strings.Join(names, ", ")
}

func (m *recording) shown() int {
	if m.options.Value == "" {
		return 1
	}
	return slices.IndexFunc(m.valueTypes(), func(v profile.ValueType) bool { return v.Type == m.options.Value })
}

func (m *recording) values(from stacks.Source, v stacks.Value) []int64 {
	values := []int64{int64(v.Samples)}
	for _, p := range m.parts {
		if p.source == from {
			values = append(values, p.of(v)...)
		} else {
			values = append(values, make([]int64, len(p.types))...)
		}
	}
	return values
}

func (m *recording) timelineSpec() (all timelineSpec, ok bool) {
	for _, p := range m.parts {
		one, _ := p.timelineSpec() // all parts have a place in time
		all.interval = max(all.interval, one.interval)
		all.everyWait = all.everyWait || one.everyWait
	}
	return all, true
}

func (m *recording) place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	i := slices.IndexFunc(m.parts, func(p part) bool { return p.source == s.Source })
	return m.parts[i].place(p, s)
}

func (m *recording) describe(meta *profile.Meta) {
	var events []string
	for _, p := range m.parts {
		var one profile.Meta
		p.describe(&one)
		events = append(events, one.Event)
		meta.Frequency = max(meta.Frequency, one.Frequency)
	}
	meta.Event = strings.Join(events, ", ")
	meta.Value = m.valueTypes()[m.shown()].Type
}

func (m *recording) notes(store *stacks.Store) (lines []string) {
	for _, p := range m.parts {
		if p.source != stacks.BlockIO { // its histograms are for a report of their own
			lines = append(lines, p.notes(store)...)
		}
	}
	return lines
}

func (*recording) whyNothing() string { return "the target neither ran nor waited" }
