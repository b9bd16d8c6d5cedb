package latency

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/message/usage"
)

// Follow configures how the kernel side follows what threads do in intervals; see bpf/parts.h.
type Follow struct {
	// Rows is the number of slowest intervals to keep, at most [MaxRows].
	Rows int
}

// MaxRows is the maximum number of slowest intervals.
const MaxRows = int(bpf.LatencyPartLimitsSLOWEST_MAX)

// MaxParts is the number of different waits and samples that an interval can have.
const MaxParts = int(bpf.LatencyPartLimitsPARTS_MAX) - 2

// Kinds of parts of intervals, the details of keys, without [Slow].
const (
	// Running is the time that the threads of intervals ran. Its stack is that at the beginning.
	Running = uint64(bpf.LatencyPartKindPART_RUNNING)
	// Sample is a sample of the code in an interval, without a time.
	Sample = uint64(bpf.LatencyPartKindPART_SAMPLE)
	// Wait is a wait for something other than a CPU, and Woken the time from its end until the
	// thread ran.
	Wait  = uint64(bpf.LatencyPartKindPART_WAIT)
	Woken = Wait | runnable
	// Preempted is a wait for a CPU that another thread took.
	Preempted = uint64(bpf.LatencyPartKindPART_PREEMPTED) | runnable
	// Unkept are waits without room for their stacks, and UnkeptWoken is as Woken for them. Their stack is
	// that at the beginning of the interval. Unkept also counts samples without room.
	Unkept      = uint64(bpf.LatencyPartKindPART_UNKEPT)
	UnkeptWoken = Unkept | runnable

	runnable = uint64(bpf.LatencyPartBitPART_RUNNABLE)
	// Slow is set in the kinds of the parts of slow intervals.
	Slow = uint64(bpf.LatencyPartBitPART_SLOW)
)

// orcTables is the map of bpf/orc.h, which not all architectures have.
const orcTables = "orc_tables"

// follow makes the maps and programs fit what is followed. It returns their variables.
func (o Options) follow(spec *ebpf.CollectionSpec) (map[string]any, error) {
	if o.Follow == nil {
		probe.WithoutAddresses(spec, probe.ORCSymbols...)
		for _, name := range []string{bpf.LatencyProgPartsSwitch, bpf.LatencyProgPartsWaking, bpf.LatencyProgPartsExec, bpf.LatencyProgPartsSample} {
			delete(spec.Programs, name)
		}
		delete(spec.Maps, orcTables)
		spec.Maps[bpf.LatencyMapSlowest].MaxEntries = 1
		return map[string]any{}, nil
	}
	variables, err := probe.AdaptWaits(spec, o.Types)
	if err != nil {
		return nil, err
	}
	spec.Maps[bpf.LatencyMapProgresses].MaxEntries = max(o.PendingEntries, 1)
	variables[bpf.LatencyVarFollows] = true
	variables[bpf.LatencyVarSlowestRows] = uint32(min(o.Follow.Rows, MaxRows))
	return variables, nil
}

// counted returns the function that converts an entry of a count map.
func (o Options) counted() func(bpf.LatencyCountKey, bpf.LatencyCountValue) (stacks.Key, stacks.Values) {
	if o.Follow == nil {
		return counted
	}
	return func(k bpf.LatencyCountKey, v bpf.LatencyCountValue) (stacks.Key, stacks.Values) {
		return stacks.Key{ID: k.Id, Kernel: k.Waker, Detail: uint64(k.Part), TID: k.Tid}, stacks.Values{Intervals: v.Intervals, Time: v.Time}
	}
}

// SetSlow sets which intervals are slow from now on: those of at least from and less than until ns.
// Before the first call, intervals are on neither side.
func (s *Source) SetSlow(from, until uint64) error {
	err := errors.Join(s.Variables[bpf.LatencyVarSlowUntil].Set(until), s.Variables[bpf.LatencyVarSlowFrom].Set(max(from, 1)))
	if err != nil {
		return fmt.Errorf("tell the kernel side which intervals are slow: %w", err)
	}
	return nil
}

// SlowInterval is one of the slowest intervals.
type SlowInterval = bpf.LatencySlowInterval

// Slowest returns the slowest intervals, the slowest first.
func (s *Source) Slowest(n int) (all []SlowInterval, err error) {
	for slot := range s.Maps[bpf.LatencyMapSlowest].MaxEntries() {
		var perCPU []bpf.LatencySlowestList
		if err := s.Maps[bpf.LatencyMapSlowest].Lookup(slot, &perCPU); err != nil {
			return nil, fmt.Errorf("read the slowest intervals: %w", err)
		}
		for _, list := range perCPU {
			all = append(all, list.Rows[:min(int(list.N), len(list.Rows))]...)
		}
	}
	slices.SortFunc(all, func(a, b SlowInterval) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Since, b.Since)) })
	return all[:min(n, len(all))], nil
}

// Excluded are intervals that are on neither side.
type Excluded struct {
	// Undecided ended before it was known which are slow, Moved ended in another thread than they began,
	// and of Unseen a switch of the thread was not reported. Nested are calls in an interval
	// of the same thread, which they are a part of.
	Undecided, Moved, Unseen, Nested uint64
}

// Excluded returns how many intervals are on neither side.
func (s *Source) Excluded() (e Excluded, err error) {
	for stat, to := range map[bpf.Stat]*uint64{
		bpf.StatUndecided: &e.Undecided, bpf.StatMoved: &e.Moved, bpf.StatMissed: &e.Unseen, bpf.StatNested: &e.Nested,
	} {
		n, statErr := s.StatSum(stat)
		*to, err = n, errors.Join(err, statErr)
	}
	return e, err
}

// partsPending returns the IDs of the stacks of the parts of intervals in progress.
func (s *Source) partsPending() (ids []uint64, err error) {
	if !s.follows {
		return nil, nil
	}
	var task uint64
	var p bpf.LatencyProgress
	all := s.Maps[bpf.LatencyMapProgresses].Iterate()
	for all.Next(&task, &p) {
		if p.Open == 0 {
			continue
		}
		ids = append(ids, p.Stack)
		for _, part := range p.Parts[:min(int(p.N), len(p.Parts))] {
			ids = append(ids, part.Id, part.Kernel)
		}
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return ids, fmt.Errorf("read the parts of intervals in progress: %w", err)
	}
	return slices.DeleteFunc(ids, func(id uint64) bool { return id == 0 }), nil
}

// checkFollowed refuses pairs whose intervals cannot be followed.
func (p foundPair) checkFollowed() error {
	switch p.Match {
	case SameThread, UserCall, KernelCall:
		return nil
	case GoCall:
		return usage.Errorf("%s is a function of a Go program: goroutines change threads, and it is threads that fulgur follows; fulgur latency measures its time", p.Begin)
	}
	return usage.Errorf("intervals that are matched by a field belong to no thread that fulgur could follow: leave out %s, or measure their time with fulgur latency", usage.Key)
}
