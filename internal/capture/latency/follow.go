package latency

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/events"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/linux/rcu"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// Follow configures how the kernel side follows what threads do in intervals; see bpf/parts.h.
type Follow struct {
	// Rows is the number of slowest intervals to keep of a window, at most [MaxRows].
	Rows int
	// Wakers distinguishes waits by the stacks of the threads that ended them.
	Wakers bool
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
		spec.Maps[bpf.LatencyMapSlowest].MaxEntries = 1 // the others have one anyway
		return map[string]any{}, nil
	}
	variables, err := probe.AdaptWaits(spec, o.Types)
	if err != nil {
		return nil, err
	}
	spec.Maps[bpf.LatencyMapProgresses].MaxEntries = max(o.PendingEntries, 1)
	variables[bpf.LatencyVarFollows] = true
	variables[bpf.LatencyVarFollowsWakers] = o.Follow.Wakers
	variables[bpf.LatencyVarSlowestRows] = uint32(min(o.Follow.Rows, MaxRows))
	if o.Follow.Rows > 0 && o.shows() {
		variables[bpf.LatencyVarShows] = true
		spec.Maps[bpf.LatencyMapShown].MaxEntries = max(o.PendingEntries, 1)
		spec.Maps[bpf.LatencyMapSlowestShown].MaxEntries = spec.Maps[bpf.LatencyMapSlowest].MaxEntries * uint32(MaxRows)
	}
	return variables, nil
}

// shows reports whether fields of the first event are to be kept. Without an event, all code is loaded.
func (o Options) shows() bool {
	return o.Begin == nil || slices.ContainsFunc(o.Begin.Points, func(p events.Point) bool { return len(p.Shown) > 0 })
}

// counted returns the function that converts an entry of a count map.
func (o Options) counted() func(bpf.LatencyCountKey, bpf.LatencyCountValue) (stacks.Key, stacks.Values) {
	if o.Follow == nil {
		return counted
	}
	return func(k bpf.LatencyCountKey, v bpf.LatencyCountValue) (stacks.Key, stacks.Values) {
		return stacks.Key{ID: k.Id, Kernel: k.Waker, Waker: k.Detail, Detail: uint64(k.Part), TID: k.Tid}, stacks.Values{Intervals: v.Intervals, Time: v.Time}
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
type SlowInterval struct {
	bpf.LatencySlowInterval
	// Fields are the fields of the event at which it began that [Config.Show] has.
	Fields []profile.Label
}

// IsSlow reports whether the interval is on the slow side.
func (i SlowInterval) IsSlow() bool { return uint64(i.Side) == Slow }

// Slowest returns the slowest intervals of the window, the slowest first, and begins the next one.
func (s *Source) Slowest(n int) (all []SlowInterval, err error) {
	window := s.window
	s.window++
	if err := errors.Join(s.Variables[bpf.LatencyVarSlowestWindow].Set(s.window), rcu.Wait()); err != nil {
		return nil, fmt.Errorf("begin the next list of slowest intervals: %w", err)
	}
	type at struct {
		list uint32
		cpu  int
		row  int
	}
	var places []at
	const lists = uint32(bpf.LatencyPartLimitsSLOWEST_LISTS)
	for list := window % lists; list < s.Maps[bpf.LatencyMapSlowest].MaxEntries(); list += lists {
		var perCPU []bpf.LatencySlowestList
		if err := s.Maps[bpf.LatencyMapSlowest].Lookup(list, &perCPU); err != nil {
			return nil, fmt.Errorf("read the slowest intervals: %w", err)
		}
		for cpu, l := range perCPU {
			if l.Window != window {
				continue
			}
			for row := range min(int(l.N), len(l.Rows)) {
				all = append(all, SlowInterval{LatencySlowInterval: l.Rows[row]})
				places = append(places, at{list, cpu, row})
			}
		}
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(all[b].Time, all[a].Time), cmp.Compare(all[a].Since, all[b].Since))
	})
	slowest := make([]SlowInterval, min(n, len(all)))
	for i := range slowest {
		p := places[order[i]]
		slowest[i] = all[order[i]]
		if slowest[i].Fields, err = s.fields(p.list*uint32(MaxRows)+uint32(p.row), p.cpu); err != nil {
			return nil, err
		}
	}
	return slowest, nil
}

// fields returns the fields of the event at which an interval began, nil if none are kept.
func (s *Source) fields(row uint32, cpu int) (all []profile.Label, err error) {
	if !s.shows {
		return nil, nil
	}
	var perCPU []bpf.LatencyShownFields
	if err := s.Maps[bpf.LatencyMapSlowestShown].Lookup(row, &perCPU); err != nil {
		return nil, fmt.Errorf("read the fields of the slowest intervals: %w", err)
	}
	kept := &perCPU[cpu]
	i := slices.IndexFunc(s.begin.Points, func(p events.Point) bool { return p.Place == int(kept.Place) })
	if i < 0 {
		return nil, nil
	}
	shown := s.begin.Points[i].Shown
	values := events.ShownValues(shown, kept.Texts, kept.Numbers[:], func(i, _ int) []byte {
		return unsafe.Slice((*byte)(unsafe.Pointer(&kept.Text[i])), unsafe.Sizeof(kept.Text[i]))
	})
	for i, value := range values {
		all = append(all, profile.Label{Key: shown[i].Name, Value: value})
	}
	return all, nil
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
		ids = append(ids, p.Stack, p.Waker)
		for _, part := range p.Parts[:min(int(p.N), len(p.Parts))] {
			ids = append(ids, part.Id, part.Kernel, part.Waker)
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
