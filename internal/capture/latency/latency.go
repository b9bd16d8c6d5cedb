// Package latency measures the time between two events by stack, with bpf/latency.bpf.c:
// from the entry of a function to its return, or between any events of package events.
package latency

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/attach"
	"fulgur/internal/capture/distribution"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/histogram"
)

// DefaultPendingEntries is the default of [Options.PendingEntries].
const DefaultPendingEntries = 1 << 14

// Match is how the second event of an interval is found.
type Match uint32

// The ways to match events; see bpf/latency.bpf.c.
const (
	// SameThread matches the next one of the thread.
	SameThread = Match(bpf.LatencyLatencyMatchMATCH_THREAD)
	// SameField matches the next one with the same value of a field. SameFieldInProcess
	// and SameFieldInThread also compare the process or the thread.
	SameField          = Match(bpf.LatencyLatencyMatchMATCH_FIELD)
	SameFieldInProcess = Match(bpf.LatencyLatencyMatchMATCH_FIELD_IN_PROCESS)
	SameFieldInThread  = Match(bpf.LatencyLatencyMatchMATCH_FIELD_IN_THREAD)
	// UserCall and KernelCall match the return of the same call, which may be recursive.
	UserCall   = Match(bpf.LatencyLatencyMatchMATCH_USER_CALL)
	KernelCall = Match(bpf.LatencyLatencyMatchMATCH_KERNEL_CALL)
	// GoCall matches the return of the same call of a function of a Go program.
	GoCall = Match(bpf.LatencyLatencyMatchMATCH_GO_CALL)
)

// Options configure the kernel side.
type Options struct {
	probe.Options
	// Begin and End are the events at which intervals begin and end. nil loads the
	// programs of all kinds of events, which then cannot be attached.
	Begin, End *events.Probe
	Match      Match
	// Filter is a condition for Begin.
	Filter events.Filter
	// Detailed distinguishes the first field of Begin, as the detail of keys.
	Detailed bool
	// KeepsFirst makes Begin belong to an interval in progress. Otherwise it replaces it.
	KeepsFirst bool
	// Wakers distinguishes intervals by the thread that last woke the waiting one. It needs a
	// match by thread.
	Wakers bool
	// Owners distinguishes the threads that hold the lock of lock:contention_begin. It needs
	// [Pair.Shown].
	Owners bool
	// MaxRate is the maximum number of intervals to measure per second and CPU; 0 means no
	// limit.
	MaxRate uint64
	// PendingEntries limits the intervals in progress; see [DefaultPendingEntries].
	PendingEntries uint32
	// Follow, if not nil, counts what threads do in intervals, instead of the intervals. It needs a match
	// by thread, or by calls other than [GoCall].
	Follow *Follow
}

var _ interface {
	source.Source
	source.Waiting
} = (*Source)(nil)

// Source is the loaded kernel side of a pair of events.
type Source struct {
	attach.Source
	pending uint64 // intervals in progress at the end
	evicted uint64 // intervals that gave way to newer ones
	wakers  bool
	follows bool
	shows   bool              // fields of the first event are kept
	begin   *events.Probe     // the first event, nil without one
	window  uint32            // see [Source.Slowest]
	owners  map[uint32]string // names of the owners of locks, by TID
}

// The programs of bpf/latency.bpf.c.
var (
	begins = attach.Programs{
		Tracepoint: bpf.LatencyProgBeginTracepoint, Kprobe: bpf.LatencyProgBeginKprobe, Uprobe: bpf.LatencyProgBeginUprobe,
		Uretprobe: bpf.LatencyProgBeginUretprobe,
	}
	ends = attach.Programs{
		Tracepoint: bpf.LatencyProgEndTracepoint, Kprobe: bpf.LatencyProgEndKprobe, Uprobe: bpf.LatencyProgEndUprobe,
		Uretprobe: bpf.LatencyProgEndUretprobe,
		Index:     1,
	}
)

// reserved is the number of free entries that each CPU of an LRU map can take at a time
// (LOCAL_FREE_TARGET of kernel/bpf/bpf_lru_list.c), so that other CPUs cannot use them.
const reserved = 128

// Load loads the programs and their maps. It returns the kernel's errors as cilium/ebpf
// does.
func Load(o Options) (*Source, error) {
	spec, err := bpf.LoadLatency()
	if err != nil {
		return nil, err
	}
	variables, err := o.follow(spec)
	if err != nil {
		return nil, err
	}
	maps.Copy(variables, map[string]any{
		bpf.LatencyVarMaxRate:    o.MaxRate,
		bpf.LatencyVarFiltered:   !o.Filter.Empty(),
		bpf.LatencyVarMatch:      uint32(o.Match),
		bpf.LatencyVarDetailed:   o.Detailed,
		bpf.LatencyVarKeepsFirst: o.KeepsFirst,
		bpf.LatencyVarByWaker:    o.Wakers,
		bpf.LatencyVarByPoint:    o.Begin != nil && o.Begin.Distinguishes(),
		bpf.CountVarAtEntry:      true, // without an event, load all of the code
	})
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	entries := max(o.PendingEntries, 1) + uint32(cpus+1)*reserved
	spec.Maps[bpf.LatencyMapIntervals].MaxEntries = entries
	spec.Maps[bpf.LatencyMapCalls].MaxEntries = 1
	if o.Match >= UserCall && o.Follow == nil {
		spec.Maps[bpf.LatencyMapInnermost].MaxEntries = entries
	}
	switch o.Match {
	case UserCall:
		spec.Maps[bpf.LatencyMapStackEnds].MaxEntries = entries
	case KernelCall:
		spec.Maps[bpf.LatencyMapCalls].MaxEntries = entries
	}
	if o.Wakers {
		spec.Maps[bpf.LatencyMapWakers].MaxEntries = entries
	} else {
		delete(spec.Programs, bpf.LatencyProgLatencyWaking)
	}
	if o.Owners {
		spec.Maps[bpf.LatencyMapOwners].MaxEntries = entries
		variables[bpf.LatencyVarFlagsField] = flagsField(o.Begin)
	}
	if o.Begin != nil {
		if err := errors.Join(begins.Adapt(spec, o.Begin, o.Types), ends.Adapt(spec, o.End, o.Types)); err != nil {
			return nil, err
		}
		attach.Prepare(spec, variables, o.Begin, o.End)
		variables[bpf.LatencyVarEndPlaces] = uint32(len(o.Begin.Places))
		variables[bpf.LatencyVarKeepsRegisters] = !o.End.OtherRegisters
	}
	s := &Source{wakers: o.Wakers, follows: o.Follow != nil, begin: o.Begin, shows: variables[bpf.LatencyVarShows] == true, owners: map[uint32]string{}}
	s.Snapshots, err = source.LoadWithSnapshots(spec, o.Options, variables, o.counted())
	if err != nil || o.Begin == nil {
		return s, err
	}
	// The end is attached first, so that no interval begins without it.
	s.Attached = []*attach.Program{ends.Of(s.Programs, o.End), begins.Of(s.Programs, o.Begin)}
	if err := attach.Fill(s.Maps, o.Filter, o.Begin, o.End); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// counted converts an entry of a count map.
func counted(k bpf.LatencyCountKey, v bpf.LatencyCountValue) (stacks.Key, stacks.Values) {
	return stacks.Key{ID: k.Id, Waker: k.Waker, Detail: k.Detail, Owner: k.Owner, TID: k.Tid, CPU: k.Cpu}, stacks.Values{Intervals: v.Intervals, Time: v.Time}
}

// flagsField returns the index of the flags of lock:contention_begin among the fields of a
// place, 0 if there are none. begin is nil to load the program alone.
func flagsField(begin *events.Probe) uint32 {
	if begin == nil {
		return events.ShownField(0)
	}
	for i, f := range begin.Points[0].Shown {
		if f.Name == "flags" {
			return events.ShownField(i)
		}
	}
	return 0
}

// Attach implements [source.Source].
func (s *Source) Attach(t target.Target) error {
	var tracing []string
	if s.wakers {
		tracing = append(tracing, bpf.LatencyProgLatencyWaking)
	}
	if s.follows {
		tracing = append(tracing, bpf.LatencyProgPartsExec, bpf.LatencyProgPartsWaking, bpf.LatencyProgPartsSwitch)
	}
	if err := s.AttachTracing(tracing...); err != nil {
		return err
	}
	return s.Source.Attach(t)
}

// End implements [source.Source]. Intervals in progress do not count.
func (s *Source) End() error {
	known, err := s.known()
	s.pending = uint64(len(inProgress(known)))
	followed, followedErr := s.StatSum(bpf.StatFollowed)
	forgotten, forgottenErr := s.StatSum(bpf.StatForgotten)
	if kept := forgotten + s.pending; followed > kept {
		s.evicted = followed - kept
	}
	return errors.Join(s.Source.End(), err, followedErr, forgottenErr)
}

// Pending implements [source.Waiting].
func (s *Source) Pending() (ids []uint64, err error) {
	ids, err = s.partsPending()
	if err != nil {
		return nil, err
	}
	all, err := s.InProgress()
	for _, i := range all {
		ids = append(ids, i.Id)
	}
	var task uint64
	var waker bpf.LatencyWaker
	wakers := s.Maps[bpf.LatencyMapWakers].Iterate()
	for wakers.Next(&task, &waker) {
		if waker.Id != 0 {
			ids = append(ids, waker.Id)
		}
	}
	if iterErr := wakers.Err(); iterErr != nil && !errors.Is(iterErr, ebpf.ErrIterationAborted) {
		err = errors.Join(err, fmt.Errorf("read the wakers of waits: %w", iterErr))
	}
	return ids, err
}

// Owner returns the name of a thread that owned a lock, "" if it is unknown.
func (s *Source) Owner(tid uint32) string {
	name, known := s.owners[tid]
	if known {
		return name
	}
	var owner bpf.LatencyOwner
	if err := s.Maps[bpf.LatencyMapOwners].Lookup(tid, &owner); err != nil {
		return ""
	}
	comm := unsafe.Slice((*byte)(unsafe.Pointer(&owner.Comm)), unsafe.Sizeof(owner.Comm))
	name = unix.ByteSliceToString(comm)
	s.owners[tid] = name
	return name
}

// Interval is an interval in progress.
type Interval = bpf.LatencyInterval

// ended is the beginning of an interval that the kernel side has not deleted at its end.
const ended = math.MaxUint64 // INTERVAL_ENDED of bpf/latency.bpf.c

// InProgress returns the intervals in progress.
func (s *Source) InProgress() ([]Interval, error) {
	known, err := s.known()
	return inProgress(known), err
}

// inProgress returns those of the known intervals that have not ended.
func inProgress(known []Interval) []Interval {
	return slices.DeleteFunc(slices.Clone(known), func(i Interval) bool { return i.Since == ended })
}

// known returns the intervals that the kernel side has not forgotten.
func (s *Source) known() (intervals []Interval, err error) {
	var key bpf.LatencyIntervalKey
	var value Interval
	all := s.Maps[bpf.LatencyMapIntervals].Iterate()
	for all.Next(&key, &value) {
		intervals = append(intervals, value)
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return intervals, fmt.Errorf("read which intervals are in progress: %w", err)
	}
	return intervals, nil
}

// Unfinished returns the number of intervals that had begun but had not ended when another
// one replaced them, or at the end.
func (s *Source) Unfinished() (uint64, error) {
	n, err := s.StatSum(bpf.StatUnfinished)
	return n + s.pending, err
}

// Ambiguous returns the number of returns that can have ended the interval of another call, since both
// calls had the same address: of coroutines whose stacks the program copies.
func (s *Source) Ambiguous() (uint64, error) { return s.StatSum(bpf.StatAmbiguous) }

// Stats implements [source.Source]. Intervals that gave way to newer ones were not followed to their end.
func (s *Source) Stats() (probe.Stats, error) {
	stats, err := s.Source.Stats()
	stats.Losses[profile.LossUnfollowed] += s.evicted
	return stats, err
}

// Distribution returns the distribution of the intervals. The time of a recursive call is also part of
// the calls around it.
func (s *Source) Distribution() (histogram.Times, error) {
	return distribution.OfCPUs(s.Maps[bpf.LatencyMapDistribution], func(k distribution.Kernel) distribution.Kernel { return k })
}
