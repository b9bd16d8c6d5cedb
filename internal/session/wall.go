package session

import (
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/doctor"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// wall is the subject of wall-clock time: on and off the CPU, in one unit.
type wall struct {
	joint
	on *oncpu.Subject
}

func newWall(c oncpu.Config, pending uint32) *wall {
	if c.Event == "" {
		c.Event = "cpu-clock" // cycles are not time
	}
	on := oncpu.New(c)
	return &wall{joint: joint{on, offcpu.New(offcpu.Config{PendingEntries: pending})}, on: on}
}

func (*wall) Command() doctor.Command { return doctor.Profile }

func (m *wall) Complete(c source.Common) error {
	if m.on.Idle {
		return usage.Errorf("wall-clock time and idle CPUs cannot be combined: wall-clock time is measured for threads")
	}
	if err := m.joint.Complete(c); err != nil {
		return err
	}
	if !m.on.Specs[0].IsTime() {
		return usage.Errorf("wall-clock time needs a clock, but %s is not one: use cpu-clock or task-clock", m.on.Specs[0].Name)
	}
	return nil
}

// Values returns the numbers of samples and waits, the time on CPU, the time
// off CPU, and their sum.
func (*wall) Values(*stacks.Store) []source.Value {
	on, off := []int{oncpu.Weight}, []int{offcpu.OffCPU}
	return []source.Value{
		{ValueType: profile.ValueType{Type: "samples", Unit: "count"}, Of: [][]int{{oncpu.Samples}, {offcpu.Waits}}},
		{ValueType: profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Of: [][]int{on}},
		{ValueType: profile.OffCPUTime, Of: [][]int{nil, off}},
		{ValueType: profile.ValueType{Type: "wall", Unit: "nanoseconds"}, Of: [][]int{on, off}},
	}
}

func (*wall) Shown() int { return 3 }

func (m *wall) Times() (source.Times, bool) {
	times, ok := m.on.Times()
	times.EveryWait = true
	return times, ok
}

func (*wall) Notes(*stacks.Store) []string { return nil }

func (*wall) WhyNothing() string { return "no thread of the target ran or waited: it exited at once" }

func (m *wall) Describe(meta *profile.Meta) {
	m.on.Describe(meta)
	meta.Event += " and waits"
}
