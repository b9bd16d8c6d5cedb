package session

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/blockio"
	"fulgur/internal/capture/faults"
	"fulgur/internal/capture/hits"
	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/locks"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/trigger"
	"fulgur/internal/doctor"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/report"
)

// DefaultRecordFrequency is close to samply's default, and odd.
const DefaultRecordFrequency = 999

// DefaultRecordHits is the default of [RecordOptions.MaxRate]. Each hit takes some hundred
// bytes in a ring and a hundred in the recording.
const DefaultRecordHits = 10_000

// RecordOptions describe a recording of threads' activity and waits.
type RecordOptions struct {
	Options
	// Frequency is in samples per second and CPU; 0 means the default.
	Frequency uint64
	// Events are the names of events whose hits are recorded; see [hits.Config]. Filter is a
	// condition for hits, and MaxRate the maximum number of hits of an event to record per
	// second and CPU; 0 means [DefaultRecordHits].
	Events  []string
	Filter  string
	MaxRate uint64
	attach.Places
	// Locks also records waits for locks, at most MaxRate of a kind per second and CPU.
	Locks bool
	// NoCPU, NoOffCPU, NoBlockIO and NoFaults each leave out a part.
	NoCPU, NoOffCPU, NoBlockIO, NoFaults bool
	// Shortest is the minimum time off the CPU to record.
	Shortest time.Duration
	// WakerStacks also records the stack of the waker of each wait.
	WakerStacks bool
	// FaultPeriod records every Nth page fault; 0 records each.
	FaultPeriod uint64
	// PendingEntries limits the waiting threads to track, and the disk requests in flight; 0 means the defaults.
	PendingEntries uint32
	// Triggers are those of a flight recorder, see [Flight]; the recording gets what they need.
	Triggers []*trigger.Trigger
	// Value names the value to output in formats that hold one; empty means
	// the first.
	Value string
}

// Subject returns the subject of activity and waits of threads.
func (o *RecordOptions) Subject() source.Subject { return &recording{options: o} }

// recording is the subject of [RecordOptions].
type recording struct {
	joint
	options *RecordOptions
	parts   []part
}

// part is a subject as a part of a recording.
type part struct {
	source.Subject
	// values are the source's values in the recording. Of is an index into
	// the source's values.
	values []partValue
	// share is the number of such parts that share the memory of a ring: many for events
	// that need little room.
	share uint32
	// noteless suppresses its notes, which are meant for its own report.
	noteless bool
	// everywhere is set to measure the whole machine, whatever the target is.
	everywhere bool
}

// partValue is one of a source's [stacks.Values], with its name in the
// recording.
type partValue struct {
	profile.ValueType
	of int
}

func (m *recording) Command() doctor.Command {
	if len(m.parts) == 1 {
		return m.parts[0].Command()
	}
	return doctor.Record
}

// choose selects the requested parts.
func (m *recording) choose(chosen []string) {
	o := m.options
	for _, p := range []struct {
		leftOut bool
		part
	}{
		{o.NoCPU, part{
			Subject: oncpu.New(oncpu.Config{Event: "cpu-clock", Frequency: cmp.Or(o.Frequency, DefaultRecordFrequency)}),
			values:  []partValue{{profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, oncpu.Weight}},
			share:   8,
		}},
		{o.NoOffCPU, part{
			Subject: offcpu.New(offcpu.Config{Shortest: o.Shortest, WakerStacks: o.WakerStacks, PendingEntries: o.PendingEntries}),
			values:  []partValue{{profile.OffCPUTime, offcpu.OffCPU}},
		}},
		{o.NoBlockIO, part{
			Subject: blockio.New(blockio.Config{PendingEntries: o.PendingEntries}),
			values: []partValue{
				{profile.ValueType{Type: "block-io", Unit: "bytes"}, blockio.Bytes},
				{profile.ValueType{Type: "block-io-time", Unit: "nanoseconds"}, blockio.Latency},
			},
			share: 8, noteless: true,
		}},
		{o.NoFaults, part{
			Subject: faults.New(faults.Config{Period: o.FaultPeriod}),
			values:  []partValue{{profile.ValueType{Type: "faults", Unit: "count"}, faults.Faults}},
		}},
	} {
		if !p.leftOut {
			m.parts = append(m.parts, p.part)
		}
	}
	for _, e := range chosen {
		m.parts = append(m.parts, part{
			Subject: hits.New(hits.Config{
				Events: []string{e}, Filter: o.Filter, MaxRate: cmp.Or(o.MaxRate, DefaultRecordHits), Places: o.Places, Recorded: true,
			}),
			values: []partValue{{profile.ValueType{Type: e, Unit: "count"}, hits.Hits}},
			share:  uint32(len(chosen)),
		})
	}
	if o.Locks {
		for _, c := range locks.Parts(cmp.Or(o.MaxRate, DefaultRecordHits)) {
			m.parts = append(m.parts, part{Subject: locks.New(c), values: []partValue{{locks.Value, latency.Time}}, share: 8})
		}
	}
	m.parts = append(m.parts, m.triggerParts(chosen)...)
	for i, p := range m.parts {
		if p.everywhere {
			m.parts[i].Subject = everywhere{p.Subject}
		}
		m.joint = append(m.joint, m.parts[i].Subject)
	}
}

// keep drops all other parts than the given ones.
func (m *recording) keep(only own) {
	m.parts = slices.DeleteFunc(m.parts, func(p part) bool { return p.Subject != only.cpu && p.Subject != only.waits })
	m.joint = nil
	for _, p := range m.parts {
		m.joint = append(m.joint, p.Subject)
	}
}

// triggerParts returns the parts that triggers need, besides chosen events.
func (m *recording) triggerParts(chosen []string) (parts []part) {
	o := m.options
	rate := cmp.Or(o.MaxRate, DefaultRecordHits)
	have := map[trigger.Event]bool{}
	intervals := map[[2]string]bool{}
	for _, t := range o.Triggers {
		needs := t.Needs()
		for _, e := range needs.Events {
			if have[e] || o.Filter == "" && slices.Contains(chosen, "tracepoint:"+e.Name) && !e.Everywhere {
				continue
			}
			have[e] = true
			parts = append(parts, part{
				Subject: hits.New(hits.Config{Events: []string{e.Name}, Filter: e.Filter, MaxRate: rate, Recorded: true}),
				values:  []partValue{{profile.ValueType{Type: "tracepoint:" + e.Name, Unit: "count"}, hits.Hits}},
				share:   8, noteless: true, everywhere: e.Everywhere,
			})
		}
		pair := [2]string{needs.Begin, needs.Until}
		if needs.Begin == "" || intervals[pair] {
			continue
		}
		intervals[pair] = true
		value := trigger.LatencyEvent(needs.Begin, needs.Until)
		parts = append(parts, part{
			Subject: latency.New(latency.Config{
				Events: []string{needs.Begin}, Until: needs.Until, MaxRate: rate, Places: o.Places, PendingEntries: o.PendingEntries, Recorded: value,
			}),
			values: []partValue{{profile.ValueType{Type: value, Unit: "nanoseconds"}, latency.Time}},
			share:  8, noteless: true,
		})
	}
	return parts
}

// everywhere is a subject that is measured on the whole machine.
type everywhere struct{ source.Subject }

// Load implements [source.Subject].
func (e everywhere) Load(common probe.Options) (all []source.Source, err error) {
	common.Scope, common.Cgroup, common.CgroupID = target.System, 0, 0
	sources, err := e.Subject.Load(common)
	for _, s := range sources {
		all = append(all, everywhereSource{s.(recordableSource)})
	}
	return all, err
}

// recordableSource is the source of hits.
type recordableSource interface {
	source.Source
	source.Recordable
	source.EventPlacer
	source.Rewalker
}

// everywhereSource is the source of an [everywhere].
type everywhereSource struct{ recordableSource }

// Attach implements [source.Source].
func (s everywhereSource) Attach(target.Target) error {
	return s.recordableSource.Attach(target.Target{})
}

// events returns the names of the events to record.
func (m *recording) events() ([]string, error) {
	o := m.options
	if len(o.Events) > 0 {
		return hits.Names(o.Events)
	}
	if o.Filter != "" || o.MaxRate != 0 && !o.Locks || o.Places != (attach.Places{}) {
		return nil, usage.Errorf("a filter and limits of hits need an event: choose one with %s", usage.Event)
	}
	return nil, nil
}

func (m *recording) Complete(c source.Common) error {
	chosen, err := m.events()
	if err != nil {
		return err
	}
	if m.choose(chosen); len(m.parts) == 0 || m.parts[0].everywhere {
		return usage.Errorf("nothing left to record")
	}
	if m.Shown() < 0 {
		return usage.Errorf("no value %q; the recording has %s", m.options.Value, m.valueNames())
	}
	if err := m.checkTriggers(); err != nil {
		return err
	}
	return m.joint.Complete(c)
}

// checkTriggers refuses triggers that depend on a part that is left out.
func (m *recording) checkTriggers() error {
	for _, t := range m.options.Triggers {
		switch needs := t.Needs(); {
		case needs.CPU && m.options.NoCPU:
			return usage.Errorf("trigger %q needs CPU samples, which are left out", t.Text)
		case needs.Waits && m.options.NoOffCPU:
			return usage.Errorf("trigger %q needs waits, which are left out", t.Text)
		}
	}
	return nil
}

func (m *recording) Load(common probe.Options) ([]source.Source, error) {
	return m.load(common, func(i int, o *probe.Options) {
		if share := m.parts[i].share; share > 1 && m.options.hasTimes() {
			o.RingSize /= share
		}
	})
}

// Values returns the numbers of samples, waits, requests and faults, and the
// values of each part.
func (m *recording) Values(*stacks.Store) []source.Value {
	all := source.Value{ValueType: profile.ValueType{Type: "samples", Unit: "count"}}
	var values []source.Value
	for i, p := range m.parts {
		all.Of = append(all.Of, []int{0})
		for _, v := range p.values {
			at := slices.IndexFunc(values, func(other source.Value) bool { return other.ValueType == v.ValueType })
			if at < 0 {
				at = len(values)
				values = append(values, source.Value{ValueType: v.ValueType})
			}
			values[at].Of = append(values[at].Of, make([][]int, i+1-len(values[at].Of))...)
			values[at].Of[i] = []int{v.of}
		}
	}
	return append([]source.Value{all}, values...)
}

func (m *recording) valueNames() string {
	var names []string
	for _, v := range m.Values(nil) {
		names = append(names, v.Type)
	}
	return strings.Join(names, ", ")
}

func (m *recording) Shown() int {
	if m.options.Value == "" {
		return 1
	}
	return slices.IndexFunc(m.Values(nil), func(v source.Value) bool { return v.Type == m.options.Value })
}

// first returns the index of the value of p to show first: in a recording with times, what dominates,
// unless the user has chosen one.
func (r *run) first(p *profile.Profile) int {
	value := r.subject.Shown()
	if m, ok := r.subject.(*recording); ok && m.options.Value == "" && r.recorder != nil {
		return report.First(p, value)
	}
	return value
}

func (m *recording) Times() (all source.Times, ok bool) {
	for _, s := range m.joint {
		one, _ := s.Times() // all parts have times
		all.Interval = max(all.Interval, one.Interval)
		all.EveryWait = all.EveryWait || one.EveryWait
	}
	return all, true
}

func (m *recording) Describe(meta *profile.Meta) {
	var events []string
	for _, s := range m.joint {
		var one profile.Meta
		s.Describe(&one)
		if !slices.Contains(events, one.Event) { // each kind of lock is a subject
			events = append(events, one.Event)
		}
		meta.Frequency = max(meta.Frequency, one.Frequency)
	}
	meta.Event = strings.Join(events, ", ")
}

func (m *recording) Notes(store *stacks.Store) (lines []string) {
	for _, p := range m.parts {
		if !p.noteless {
			lines = append(lines, p.Notes(store)...)
		}
	}
	return lines
}

func (*recording) WhyNothing() string { return "the target neither ran nor waited" }
