package offcpu

import (
	"os"
	"time"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/waits"
	"fulgur/internal/doctor"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// Config configures [Subject].
type Config struct {
	// Threads selects the threads that count, and States those in which they leave
	// their CPU; 0 means all.
	Threads Threads
	States  States
	// Shortest and Longest limit the waits that count; a Longest of 0 means no
	// limit.
	Shortest, Longest time.Duration
	// RunQueue shows the time during which runnable threads waited for a CPU,
	// without the time that they slept.
	RunQueue bool
	// WakerStacks shows the waker of each wait and its stack.
	WakerStacks bool
	// Peers labels each wait for a socket with the socket's peer; see [PeerLabel].
	Peers bool
	// PendingEntries limits the waiting threads to track; 0 means the default.
	PendingEntries uint32
}

// Subject is the waits of threads. It implements [source.Subject].
type Subject struct {
	Config
	common source.Common
	source *Source
}

// New returns the subject for c.
func New(c Config) *Subject { return &Subject{Config: c} }

// Command implements [source.Subject].
func (m *Subject) Command() doctor.Command {
	if m.RunQueue {
		return doctor.RunQ
	}
	return doctor.OffCPU
}

// Complete implements [source.Subject].
func (m *Subject) Complete(c source.Common) error {
	m.common = c
	if m.Longest > 0 && m.Longest < m.Shortest {
		return usage.Errorf("no wait is both at least %s and at most %s", m.Shortest, m.Longest)
	}
	if m.Peers && m.WakerStacks {
		return usage.Errorf("peers and the stacks of wakers cannot be combined")
	}
	if len(c.Target.CPUs) > 0 {
		return usage.Errorf("%s does not work with off-CPU time: a waiting thread is on no CPU", usage.CPUs)
	}
	if m.States == 0 {
		m.States = AllStates
	}
	return probe.CompleteSize(usage.PendingEntries, &m.PendingEntries, DefaultPendingEntries, 1, probe.MaxEntries)
}

// Choose implements [source.Subject].
func (*Subject) Choose() error { return nil }

// Times implements [source.Subject].
func (m *Subject) Times() (source.Times, bool) {
	// A recording also shows sleep.
	return source.Times{EveryWait: !m.chooses()}, !m.RunQueue && !m.Peers
}

// chooses reports whether the options exclude some waits.
func (m *Subject) chooses() bool {
	return m.Shortest > 0 || m.Longest > 0 || m.States != AllStates
}

// Load implements [source.Subject].
func (m *Subject) Load(common probe.Options) (_ []source.Source, err error) {
	if m.source, err = Load(common, m.Config); err != nil {
		return nil, err
	}
	return []source.Source{m.source}, nil
}

// Indexes of this source's [stacks.Values]. All but the first are in ns.
const (
	Waits    = iota // number of waits
	Sleeping        // until the wake-up
	Runnable        // from the wake-up until the thread ran
	OffCPU          // sum of the two
)

// Values implements [source.Subject].
func (m *Subject) Values(*stacks.Store) []source.Value {
	values := source.Own(
		profile.ValueType{Type: "waits", Unit: "count"},
		profile.ValueType{Type: "sleeping", Unit: "nanoseconds"},
		profile.ValueType{Type: "runnable", Unit: "nanoseconds"},
		profile.OffCPUTime,
	)
	if m.RunQueue {
		return []source.Value{values[Waits], values[Runnable]}
	}
	return values
}

// Shown implements [source.Subject].
func (m *Subject) Shown() int { return len(m.Values(nil)) - 1 }

// Place adds the stack of a wait to the profile: the stack, without kernel frames if they
// are not wanted, the wait reason as a frame of its own and, with wakers, the waker's stack
// upside down.
func (m *Subject) Place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	stack := p.PlaceFrom(p.Store.Traces[s.Trace].Leaf, m.common.UserOnly)
	reason := waits.Of
	if s.Detail&Preempted != 0 {
		reason = waits.OfRunnable
	}
	stack = p.Mark(stack, "["+string(ReasonOf(p, s.Trace, reason))+"]")
	if s.Waker == 0 {
		return stack
	}
	return p.UpsideDown(p.Mark(stack, profile.WokenBy), s.Waker-1, m.common.UserOnly)
}

// ReasonOf returns the reason of a wait, which of knows by its kernel functions.
func ReasonOf(p *naming.StackBuilder, id stacks.TraceID, of func([]string) waits.Reason) waits.Reason {
	reason := of(p.KernelFunctions(id))
	if int(p.Store.Traces[id].PID) == os.Getpid() {
		reason = reason.Own()
	}
	return reason
}

// Describe implements [source.Subject].
func (m *Subject) Describe(meta *profile.Meta) {
	meta.Event = "off-cpu"
	if m.RunQueue {
		meta.Event = "run queue"
	}
}

// Answers implements [source.Answerer]: the percentiles of the waits for a CPU, with [Config.RunQueue].
func (m *Subject) Answers() (lines []string) {
	if !m.RunQueue {
		return nil
	}
	times, err := m.source.RunQueue()
	if err != nil {
		return nil // Notes says so
	}
	for i, line := range times.Summary() {
		if i == 0 {
			line = "Waits for a CPU that ended: " + line
		}
		lines = append(lines, line)
	}
	return lines
}

// Notes returns the histogram of the waits for a CPU, with [Config.RunQueue], and the number of waits whose peers
// had no room, with [Config.Peers].
func (m *Subject) Notes(*stacks.Store) []string {
	if m.Peers {
		return m.lostPeers()
	}
	if !m.RunQueue {
		return nil
	}
	times, err := m.source.RunQueue()
	if err != nil {
		return []string{plain.Error(err)}
	}
	if drawn := times.Draw(); len(drawn) > 0 {
		return append([]string{"waits for a CPU that ended"}, drawn...)
	}
	return nil
}

// WhyNothing implements [source.Subject].
func (m *Subject) WhyNothing() string {
	if m.chooses() {
		return "no thread of the target had a wait with the requested times and states"
	}
	return "no thread of the target was off the CPU"
}
