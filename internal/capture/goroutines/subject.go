package goroutines

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/doctor"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// Config configures [Subject].
type Config struct {
	// Shortest and Longest limit the waits that count, until the goroutine runs; a Longest of 0 means no limit.
	Shortest, Longest time.Duration
	// WakerStacks shows the stack that woke each goroutine.
	WakerStacks bool
	// PendingEntries limits the waiting goroutines to track; 0 means the default.
	PendingEntries uint32

	byThread, byCPU bool
}

// Subject is the waits of goroutines. It implements [source.Subject].
type Subject struct {
	Config
	common source.Common
	source *Source
	own    stacks.Values // of the runtime's own goroutines, which are left out
}

// New returns the subject for c.
func New(c Config) *Subject { return &Subject{Config: c} }

// Command implements [source.Subject].
func (*Subject) Command() doctor.Command { return doctor.OffCPU }

// Complete implements [source.Subject].
func (m *Subject) Complete(c source.Common) error {
	m.common = c
	switch {
	case m.Longest > 0 && m.Longest < m.Shortest:
		return usage.Errorf("no wait is both at least %s and at most %s", m.Shortest, m.Longest)
	case len(c.Target.CPUs) > 0:
		return usage.Errorf("%s does not work with goroutines: a waiting goroutine is on no CPU", usage.CPUs)
	case c.Target.Scope == target.Threads:
		return usage.Errorf("threads cannot be chosen with goroutines, which change threads: choose the process with %s", usage.Process)
	}
	return probe.CompleteSize(usage.PendingEntries, &m.PendingEntries, DefaultPendingEntries, 1, probe.MaxEntries)
}

// Choose implements [source.Subject]. Go's runtime is found later, when files are mapped.
func (*Subject) Choose() error { return uprobe.CheckPrivileges() }

// Times returns false, because recordings do not support goroutines.
func (*Subject) Times() (source.Times, bool) { return source.Times{}, false }

// Load implements [source.Subject].
func (m *Subject) Load(common probe.Options) (_ []source.Source, err error) {
	m.byThread, m.byCPU = common.ByThread, common.ByCPU
	if m.source, err = Load(common, m.Config); err != nil {
		return nil, err
	}
	return []source.Source{m.source}, nil
}

// Indexes of this source's [stacks.Values]. All but the first are in ns.
const (
	Waits    = iota // number of waits
	Sleeping        // until the goroutine was runnable
	Runnable        // from then on until it ran
	OffCPU          // sum of the two
)

// Values returns the values of the waits of threads.
func (*Subject) Values(*stacks.Store) []source.Value {
	return source.Own(
		profile.ValueType{Type: "waits", Unit: "count"},
		profile.ValueType{Type: "sleeping", Unit: "nanoseconds"},
		profile.ValueType{Type: "runnable", Unit: "nanoseconds"},
		profile.OffCPUTime,
	)
}

// Shown implements [source.Subject].
func (*Subject) Shown() int { return OffCPU }

// afterWait is the detail of samples with the time after the wait. Other details are numbers of reasons.
const afterWait = 1 << 63

// Finish implements [source.Finisher]: it leaves out the runtime's own goroutines, and makes the time in which
// goroutines were runnable a sample of its own.
func (m *Subject) Finish(store *stacks.Store) {
	added := map[stacks.Sample]stacks.Values{}
	for s, v := range store.Samples {
		if s.Source != m.source.index || s.Detail&afterWait != 0 {
			continue
		}
		if m.isOwn(store, s) {
			m.own.Add(v)
			delete(store.Samples, s)
			continue
		}
		runnable := v[Runnable]
		if runnable == 0 {
			continue
		}
		v[Runnable], v[OffCPU] = 0, v[OffCPU]-runnable
		store.Samples[s] = v
		s.Detail, s.Waker = afterWait, 0
		sum := added[s]
		sum.Add(stacks.Values{Runnable: runnable, OffCPU: runnable})
		added[s] = sum
	}
	for s, v := range added {
		sum := store.Samples[s]
		sum.Add(v)
		store.Samples[s] = sum
	}
}

// isOwn reports whether a sample is of a goroutine of the runtime.
func (m *Subject) isOwn(store *stacks.Store, s stacks.Sample) bool {
	var runtime *goRuntime
	var offsets []uint64
	for node := store.Traces[s.Trace].Leaf; node != 0; node = store.Nodes[node].Parent {
		frame := store.Frames[store.Nodes[node].Frame]
		code := store.Codes[frame.Code]
		if code.Kind != stacks.CodeFile {
			return false
		}
		r := m.source.files.seen[code.File.Key]
		if r == nil || runtime != nil && r != runtime {
			return false
		}
		runtime = r
		offsets = append(offsets, frame.Call())
	}
	return runtime != nil && runtime.isOwn(offsets)
}

// releaseOf returns the version of Go in whose code a stack is, nil if it is unknown.
func (m *Subject) releaseOf(store *stacks.Store, s stacks.Sample) *release {
	for node := store.Traces[s.Trace].Leaf; node != 0; node = store.Nodes[node].Parent {
		code := store.Codes[store.Frames[store.Nodes[node].Frame].Code]
		if code.Kind != stacks.CodeFile {
			continue
		}
		if r := m.source.files.seen[code.File.Key]; r != nil {
			return r.release
		}
	}
	return nil
}

// Place adds the stack of a wait to the profile: the stack, Go's reason as a frame of its own and, with wakers, the
// waker's stack upside down.
func (m *Subject) Place(p *naming.StackBuilder, s stacks.Sample) profile.StackID {
	stack := p.PlaceFrom(p.Store.Traces[s.Trace].Leaf, m.common.UserOnly)
	if s.Detail&afterWait != 0 {
		return p.Mark(stack, "[runnable]")
	}
	stack = p.Mark(stack, "["+m.releaseOf(p.Store, s).reason(s.Detail)+"]")
	if s.Waker == 0 {
		return stack
	}
	return p.UpsideDown(p.Mark(stack, profile.WokenBy), s.Waker-1, m.common.UserOnly)
}

// Describe implements [source.Subject].
func (*Subject) Describe(meta *profile.Meta) { meta.Event = profile.GoroutineWaits }

// WhyNothing implements [source.Subject].
func (m *Subject) WhyNothing() string {
	f := m.source.files
	switch {
	case len(f.attached) > 0:
		return "no goroutine of the target began to wait during the measurement"
	case len(f.refused) > 0:
		return strings.Join(f.refused, "; ")
	case len(f.unread) > 0:
		return "no Go program was found in the files of the target, and some could not be read: " + listed(f.unread)
	}
	return "the target has no goroutines: none of its files is a Go program"
}

// Notes returns what was measured, what is missing, and the overhead.
func (m *Subject) Notes(*stacks.Store) (lines []string) {
	f := m.source.files
	if len(f.attached) > 0 {
		lines = append(lines, "Go programs: "+listed(f.attached))
	}
	if len(f.late) > 0 {
		lines = append(lines, "mapped during the measurement, so the first waits can be missing: "+listed(f.late))
	}
	if f.own {
		lines = append(lines, "fulgur's own goroutines are not measured")
	}
	lines = append(lines, f.refused...)
	hits, err := m.source.hits()
	if err != nil {
		return append(lines, plain.Error(err))
	}
	if n := m.own.Samples(); n > 0 {
		lines = append(lines, fmt.Sprintf("%s of the runtime's own goroutines left out", plain.Count(n, "wait")))
	}
	if n := hits.Earlier; n > 0 {
		lines = append(lines, fmt.Sprintf("%s left out that began before the measurement", plain.Count(n, "wait")))
	}
	if n := m.source.open; n > 0 {
		lines = append(lines, fmt.Sprintf("%s in progress at the end, counted until then", plain.Count(n, "wait")))
	}
	if n := hits.Unlisted; n > 0 {
		lines = append(lines, fmt.Sprintf("%s of more than %d goroutines at once: the others seem to wait until they ran", plain.Count(n, "wake-up"), listLimit))
	}
	return append(lines, m.source.cost(hits)...)
}

// listLimit is GOROUTINE_LISTED of the kernel side.
const listLimit = int(bpf.GoroutineGoroutineLimitGOROUTINE_LISTED)

// cost returns a line about the overhead, none if there were no hits.
func (s *Source) cost(hits hitCounts) []string {
	var total time.Duration
	var all uint64
	for program, n := range hits.Hits {
		var most time.Duration // of all files
		for _, r := range s.files.seen {
			if r == nil {
				continue
			}
			cost, err := uprobe.Cost(r.codes[program])
			if err != nil {
				return []string{plain.Error(err)}
			}
			most = max(most, cost)
		}
		all += n
		total += time.Duration(n) * most
	}
	if all == 0 {
		return nil
	}
	line := fmt.Sprintf("overhead: %s of uprobes took about %s of CPU time", plain.Count(all, "hit"), total.Round(time.Millisecond))
	if hits.Others > 0 {
		line += fmt.Sprintf("; there were %d in other processes", hits.Others)
	}
	return []string{line}
}

// maxListed is the maximum number of files in a line.
const maxListed = 8

// listed formats the names of files, each once.
func listed(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	more := len(names) - maxListed
	if more > 0 {
		names = names[:maxListed]
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
