// Package locks measures the time that threads wait for locks, by stack and lock, with
// bpf/latency.bpf.c: locks of the kernel by its tracepoints of contention, and locks of
// programs by the system calls with which a thread waits for a futex.
package locks

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf/btf"

	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/doctor"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// Side selects the locks to measure.
type Side uint8

// The sides.
const (
	Both Side = iota
	User
	Kernel
)

// Config configures [Subject].
type Config struct {
	Side Side
	// MaxRate is as in [latency.Options]; 0 means [attach.DefaultMaxRate].
	MaxRate uint64
	// PendingEntries limits the waits in progress; 0 means
	// [latency.DefaultPendingEntries].
	PendingEntries uint32
	// WakerStacks shows the stack that ended each wait, if it woke the thread.
	WakerStacks bool
	// Owners shows the thread that held each lock of the kernel when a wait began, if the
	// kernel records it.
	Owners bool

	only     string // the name of the only kind to measure
	recorded bool   // see [Parts]
}

// Parts returns configurations for a recording, one for each kind of lock, since each part of a
// recording has one source. In formats with times, each wait is a marker.
func Parts(maxRate uint64) (all []Config) {
	for _, k := range kinds {
		all = append(all, Config{MaxRate: maxRate, Owners: true, only: k.name, recorded: true})
	}
	return all
}

// Value is the value of recordings.
var Value = profile.ValueType{Type: "locks", Unit: "nanoseconds"}

// kind is a kind of lock, and the events between which threads wait for it.
type kind struct {
	name string // of a lock, unless label is set
	side Side
	// label names the lock if several kinds have the same locks.
	label string
	// rare is set for a kind that few programs use, and that a kernel may lack.
	rare bool
	// The keys are the address of the lock.
	latency.Pair
	filter string
	// keepsFirst is set because a mutex reports a wait twice: when a thread begins to spin
	// and when it begins to sleep.
	keepsFirst bool
}

// kinds are the kinds of locks. The futex operations are those that wait
// (include/uapi/linux/futex.h): WAIT, WAIT_BITSET, LOCK_PI, LOCK_PI2 and WAIT_REQUEUE_PI,
// with or without PRIVATE (128). All operations that accept CLOCK_REALTIME (256) wait.
var kinds = []kind{
	{
		name: "lock", side: Kernel, keepsFirst: true,
		Pair: latency.Pair{
			Begin: tracepoint("lock", "contention_begin"), End: tracepoint("lock", "contention_end"),
			Match: latency.SameFieldInThread, BeginKey: "lock_addr", EndKey: "lock_addr", Shown: true,
		},
	},
	{
		name: "futex", side: User,
		Pair: latency.Pair{
			Begin: tracepoint("syscalls", "sys_enter_futex"), End: tracepoint("syscalls", "sys_exit_futex"), BeginKey: "uaddr",
		},
		filter: "op == 128 || op >= 256 && op < 512 || op == 137 || op == 0 || op == 9 || op == 134 || op == 6 || " +
			"op == 141 || op == 13 || op == 139 || op == 11",
	},
	{
		name: "futex_wait", label: "futex", side: User, rare: true, // Linux 6.7
		Pair: latency.Pair{
			Begin: tracepoint("syscalls", "sys_enter_futex_wait"), End: tracepoint("syscalls", "sys_exit_futex_wait"), BeginKey: "uaddr",
		},
	},
	{
		// The first of several futexes: struct futex_waitv has its address at offset 8.
		name: "futex_waitv", label: "futex", side: User, rare: true, // Linux 5.16
		Pair: latency.Pair{
			Begin: tracepoint("syscalls", "sys_enter_futex_waitv"), End: tracepoint("syscalls", "sys_exit_futex_waitv"), BeginKey: "waiters+8",
		},
	},
}

func tracepoint(group, name string) events.Event {
	return events.Event{Kind: events.Tracepoint, Group: group, Name: name}
}

// Subject is waits for locks. It implements [source.Subject]. Each kind of lock is a
// source.
type Subject struct {
	Config
	common  source.Common
	measure []measured
	skipped []string // why kinds are not measured
	sources []*lockSource
	first   uint8 // index of the first of sources in the run
	names   kernelNames
}

// measured is a kind whose events were found.
type measured struct {
	kind
	begin, end *events.Probe
	filter     events.Filter
}

var _ interface {
	source.Source
	source.Waiting
	source.Recordable
	source.EventPlacer
} = (*lockSource)(nil)

// lockSource is the source of a kind.
type lockSource struct {
	*latency.Source
	kind  kind
	maps  mappings
	names *kernelNames
	// variables are the names of variables that are locks, as far as they were looked for. looked is the last
	// store for which they were.
	variables map[naming.Variable]string
	looked    *stacks.Store
	marker    *profile.MarkerTypeID // of waits in a recording
	// recorded are the names of locks in a recording, whose stacks do not tell the process. The
	// detail of a sample is an index.
	recorded []string
	indexes  map[string]uint64 // of recorded
}

// Check finds the mappings of the locks that threads wait for: later the process may be
// gone.
func (s *lockSource) Check() error {
	if s.kind.side != User {
		return nil
	}
	waits, err := s.InProgress()
	defer s.maps.forget()
	for _, w := range waits {
		s.maps.locate(w.Pid, w.Detail)
	}
	return err
}

// New returns the subject for c.
func New(c Config) *Subject { return &Subject{Config: c} }

// Command implements [source.Subject].
func (*Subject) Command() doctor.Command { return doctor.Locks }

// Complete implements [source.Subject].
func (m *Subject) Complete(c source.Common) error {
	m.common = c
	m.MaxRate = cmp.Or(m.MaxRate, attach.DefaultMaxRate)
	if len(c.Target.CPUs) > 0 {
		return usage.Errorf("%s does not work with locks: a wait can begin and end on two CPUs", usage.CPUs)
	}
	return probe.CompleteSize(usage.PendingEntries, &m.PendingEntries, latency.DefaultPendingEntries, 1, probe.MaxEntries)
}

// errNoContention is the error of kernels without the tracepoints for kernel locks.
var errNoContention = errors.New("kernel locks need the tracepoint lock:contention_begin of Linux 5.19")

// HasContention reports whether the kernel reports waits for its own locks.
func HasContention(kernel probe.Kernel) (bool, error) {
	_, has, err := kernel.Tracepoint("contention_begin")
	return has, err
}

// Choose finds the events.
func (m *Subject) Choose() (err error) {
	r := attach.Resolver(*m.common.Target, attach.Places{})
	defer func() { err = errors.Join(err, r.Close()) }()
	kernel, err := probe.NewKernel(btf.NewCache())
	if err != nil {
		return err
	}
	for _, k := range kinds {
		if m.Side != Both && m.Side != k.side || m.only != "" && m.only != k.name {
			continue
		}
		if k.rare {
			if has, err := r.Has(k.Begin); err != nil {
				return err
			} else if !has {
				continue
			}
		}
		if k.side == Kernel {
			has, err := HasContention(kernel)
			if err != nil {
				return err
			}
			if !has && m.Side == Kernel {
				return errNoContention
			}
			if !has {
				m.skipped = append(m.skipped, errNoContention.Error()+": only locks of programs were measured")
				continue
			}
		}
		filter, err := events.ParseFilter(k.filter)
		if err != nil {
			return err
		}
		begin, end, err := k.Find(r, filter, m.common.UserOnly)
		if err != nil {
			return err
		}
		m.measure = append(m.measure, measured{k, begin, end, filter})
	}
	return nil
}

// Times implements [source.Subject].
func (m *Subject) Times() (source.Times, bool) { return source.Times{}, m.recorded }

// rareShare is the factor by which the maximum number of counts is smaller for rare kinds.
const rareShare = 16

// Load implements [source.Subject].
func (m *Subject) Load(common probe.Options) (all []source.Source, err error) {
	m.first = common.Source
	m.sources, all, err = attach.LoadEach(common, m.measure, func(o probe.Options, k measured) (*lockSource, error) {
		if k.rare {
			o.CountEntries /= rareShare
		}
		s, err := latency.Load(latency.Options{
			Options: o, Begin: k.begin, End: k.end, Match: k.Match, Filter: k.filter, Detailed: true, KeepsFirst: k.keepsFirst,
			Wakers: k.begin != nil && (m.WakerStacks || o.Timeline), Owners: k.side == Kernel && m.Owners,
			MaxRate: m.MaxRate, PendingEntries: m.PendingEntries,
		})
		return &lockSource{Source: s, kind: k.kind, names: &m.names}, err
	})
	return all, err
}

// Values implements [source.Subject].
func (m *Subject) Values(*stacks.Store) []source.Value {
	return source.Sums(max(len(m.measure), 1), profile.ValueType{Type: "waits", Unit: "count"}, profile.ValueType{Type: "waiting", Unit: "nanoseconds"})
}

// Shown returns the time.
func (*Subject) Shown() int { return latency.Time }

// Place adds the stack of a wait to the profile, with the lock on top, its owner and, with
// wakers, the waker's stack upside down.
func (m *Subject) Place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	of := m.sources[s.Source-m.first]
	of.findVariables(p, s.Source)
	stack := attach.Place(p, s, "", m.common.UserOnly)
	stack = p.Mark(stack, "["+of.lockOf(p.Store, s)+"]")
	if s.Owner != 0 {
		stack = p.Mark(stack, "[held by "+plain.Terminal(cmp.Or(of.Owner(s.Owner), fmt.Sprintf("thread %d", s.Owner)))+"]")
	}
	if s.Waker == 0 {
		return stack
	}
	return p.UpsideDown(p.Mark(stack, profile.WokenBy), s.Waker-1, m.common.UserOnly)
}

// lockOf returns the name of the lock of a sample.
func (s *lockSource) lockOf(store *stacks.Store, sample stacks.Sample) string {
	if store.Anonymous {
		return s.recorded[sample.Detail]
	}
	return s.lock(store.Traces[sample.Trace].PID, sample.Detail)
}

// record returns the index of a name in recorded.
func (s *lockSource) record(name string) uint64 {
	n, known := s.indexes[name]
	if !known {
		if s.indexes == nil {
			s.indexes = map[string]uint64{}
		}
		n = uint64(len(s.recorded))
		s.indexes[name], s.recorded = n, append(s.recorded, name)
	}
	return n
}

// lock returns the name of the lock at an address, for which a thread of a process waited.
func (s *lockSource) lock(pid uint32, address uint64) string {
	name := cmp.Or(s.kind.label, s.kind.name) + " "
	if s.kind.side == Kernel {
		return name + s.names.name(address)
	}
	at := s.maps.locate(pid, address)
	return name + cmp.Or(s.variables[at.variable], at.text)
}

// findVariables looks for the variables that are locks of a store's samples, all at once. A recording has
// named its locks before.
func (s *lockSource) findVariables(p *naming.StackBuilder, source uint8) {
	if s.kind.side != User || s.looked == p.Store || p.Store.Anonymous {
		return
	}
	s.looked = p.Store
	if s.variables == nil {
		s.variables = map[naming.Variable]string{{}: ""}
	}
	var wanted []naming.Variable
	for sample := range p.Store.Samples {
		if sample.Source != source {
			continue
		}
		v := s.maps.locate(p.Store.Traces[sample.Trace].PID, sample.Detail).variable
		if _, known := s.variables[v]; !known && len(s.variables) < maxPlaces {
			s.variables[v] = ""
			wanted = append(wanted, v)
		}
	}
	maps.Copy(s.variables, p.Variables(wanted))
}

// Describe implements [source.Subject].
func (*Subject) Describe(meta *profile.Meta) { meta.Event = "lock contention" }

// WhyNothing implements [source.Subject].
func (m *Subject) WhyNothing() string {
	return "no thread of the target waited for a lock: a lock that is free is taken without the kernel's help"
}

// Notes returns a table of the locks of each kind for which threads waited longest.
func (m *Subject) Notes(store *stacks.Store) []string {
	lines := append(slices.Clone(m.skipped), attach.Unreached(m.sources)...)
	for i, s := range m.sources {
		lines = append(lines, source.Table(m, m.first+uint8(i), store, cmp.Or(s.kind.label, s.kind.name), func(sample stacks.Sample) string {
			return s.lockOf(store, sample)
		})...)
		unfinished, err := s.Unfinished()
		if err != nil {
			return append(lines, plain.Error(err))
		}
		if unfinished > 0 {
			lines = append(lines, fmt.Sprintf("%s for a %s did not end during the measurement: not in the result", plain.Count(unfinished, "wait"), s.kind.name))
		}
	}
	if note := m.names.note(); note != "" {
		lines = append(lines, note)
	}
	return lines
}
