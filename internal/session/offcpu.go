package session

import (
	"errors"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/waits"
	"fulgur/internal/doctor"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// offCPU is the subject of what threads wait for.
type offCPU struct {
	options *OffCPUOptions
}

func (*offCPU) command() doctor.Command { return doctor.OffCPU }

func (m *offCPU) complete() error {
	o := m.options
	if o.Longest > 0 && o.Longest < o.Shortest {
		return usage.Errorf("no wait is both at least %s and at most %s", o.Shortest, o.Longest)
	}
	if len(o.Target.CPUs) > 0 {
		return usage.Errorf("-C does not work with offcpu: a waiting thread is on no CPU")
	}
	if o.States == 0 {
		o.States = offcpu.AllStates
	}
	return completeSize("--pending-entries", &o.PendingEntries, offcpu.DefaultPendingEntries, 1, maxEntries)
}

func (*offCPU) choose() error { return nil }

func (m *offCPU) load(common probe.Options) ([]source, error) {
	o := m.options
	s, err := offcpu.Load(offcpu.Options{
		Options:        common,
		Threads:        o.Threads,
		States:         o.States,
		Shortest:       o.Shortest,
		Longest:        o.Longest,
		ByWaker:        o.WakerStacks,
		PendingEntries: o.PendingEntries,
	})
	if err != nil {
		return nil, err
	}
	return []source{s}, nil
}

// valueTypes names the values of a sample: how often threads left the CPU in it,
// for how long they slept and for how long they then waited for a CPU, and the
// sum of the two.
func (*offCPU) valueTypes() []profile.ValueType {
	return []profile.ValueType{
		{Type: "waits", Unit: "count"},
		{Type: "sleeping", Unit: "nanoseconds"},
		{Type: "runnable", Unit: "nanoseconds"},
		{Type: "off-cpu", Unit: "nanoseconds"},
	}
}

func (*offCPU) shown() int { return 3 }

func (*offCPU) values(_ stacks.Source, v stacks.Value) []int64 {
	sleeping, waiting := int64(v.Weights[1]), int64(v.Weights[2])
	return []int64{int64(v.Samples), sleeping, waiting, sleeping + waiting}
}

func (m *offCPU) place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	return placeWait(p, s, m.options.UserOnly)
}

// placeWait puts the stack of a wait into the profile: the stack, without the
// kernel's frames if they are not wanted; what the thread waited for, as a
// frame of its own; and where it is told apart, the stack of who ended the wait,
// upside down.
func placeWait(p *naming.StackBuilder, s stacks.Sample, userOnly bool) profile.StackID {
	stack := p.PlaceFrom(p.Store.Traces[s.Trace].Leaf, userOnly)
	reason := waits.Of
	if s.Detail == offcpu.Preempted {
		reason = waits.OfRunnable
	}
	stack = p.Mark(stack, "["+string(reason(p.KernelFunctions(s.Trace)))+"]")
	if s.Waker == 0 {
		return stack
	}
	return p.UpsideDown(p.Mark(stack, "[woken by]"), s.Waker-1, userOnly)
}

func (*offCPU) describe(meta *profile.Meta) { meta.Event = "off-cpu" }

func (m *offCPU) timelineSpec() (timelineSpec, bool) {
	o := m.options
	return timelineSpec{everyWait: o.Shortest == 0 && o.Longest == 0 && o.States == offcpu.AllStates}, true
}

func (*offCPU) notes(*stacks.Store) []string { return nil }

func (m *offCPU) whyNothing() string {
	if m.options.Shortest > 0 || m.options.Longest > 0 || m.options.States != offcpu.AllStates {
		return "no thread of the target had a wait with the requested times and states"
	}
	return "no thread of the target was off the CPU"
}

// wall is the subject of where time goes, on and off the CPU, in one unit.
type wall struct {
	onCPU
	offCPU offCPU
}

func (m *wall) complete() error {
	o := m.options
	if o.Event == "" {
		o.Event = "cpu-clock" // cycles are not time
	}
	if o.Idle {
		return usage.Errorf("--wall and -I cannot be combined: --wall measures time of threads")
	}
	m.offCPU.options = &OffCPUOptions{Options: o.Options}
	if err := errors.Join(m.onCPU.complete(), m.offCPU.complete()); err != nil {
		return err
	}
	if !m.specs[0].IsTime() {
		return usage.Errorf("--wall needs a clock, but %s is not one: use cpu-clock or task-clock", m.specs[0].Name)
	}
	return nil
}

func (m *wall) load(common probe.Options) ([]source, error) {
	on, err := m.onCPU.load(common)
	if err != nil {
		return nil, err
	}
	off, err := m.offCPU.load(common)
	return append(on, off...), err
}

// valueTypes names the values of a sample: how many samples and waits it stands
// for, the time on the CPU, off it, and both.
func (*wall) valueTypes() []profile.ValueType {
	return []profile.ValueType{
		{Type: "samples", Unit: "count"},
		{Type: "cpu", Unit: "nanoseconds"},
		{Type: "off-cpu", Unit: "nanoseconds"},
		{Type: "wall", Unit: "nanoseconds"},
	}
}

func (*wall) shown() int { return 3 }

func (*wall) values(_ stacks.Source, v stacks.Value) []int64 {
	on, off := int64(v.Weights[0]), int64(v.Weights[1]+v.Weights[2])
	return []int64{int64(v.Samples), on, off, on + off}
}

func (m *wall) place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	if s.Source == stacks.OffCPU {
		return placeWait(p, s, m.options.UserOnly)
	}
	return m.onCPU.place(p, s)
}

func (m *wall) timelineSpec() (timelineSpec, bool) {
	what, ok := m.onCPU.timelineSpec()
	what.everyWait = true
	return what, ok
}

func (*wall) whyNothing() string { return "no thread of the target ran or waited: it exited at once" }

func (m *wall) describe(meta *profile.Meta) {
	m.onCPU.describe(meta)
	meta.Event += " and waits"
}
