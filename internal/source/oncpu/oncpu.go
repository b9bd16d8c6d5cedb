// Package oncpu samples what runs on the processors: perf events on a
// hardware or timer event, each overflow counted by bpf/oncpu.bpf.c.
package oncpu

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"fulgur/bpf"
	"fulgur/internal/perfevent"
	"fulgur/internal/profile"
	"fulgur/internal/ringbuf"
	"fulgur/internal/source/sampling"
	"fulgur/internal/stacks"
	"fulgur/internal/target"
)

// Default sizes of the kernel side's maps. At 4999 Hz on a busy machine the
// ring holds the new stacks of more than a second, and a count map is drained
// long before it is full.
const (
	DefaultRingSize     = 1 << 20 // bytes
	DefaultCountEntries = 1 << 14 // per count map
	DefaultSeenEntries  = 1 << 16 // stack ids
)

const seenWays = 4 // bpf/stack.h

// Options configure the kernel side.
type Options struct {
	// MaxDepth is the most frames of each half of a stack, 1 to 127.
	MaxDepth int
	// SkipKernel and SkipUser leave out half of each stack.
	SkipKernel, SkipUser bool
	// Unwind is what user stacks are walked by. If not by frame pointers
	// alone, Tables has the maps of unwind tables.
	Unwind Unwind
	Tables map[string]*ebpf.Map
	// Types has the kernel's types, if they were decoded before.
	Types *btf.Cache
	// Idle includes the idle task.
	Idle bool
	// ByThread and ByCPU count threads and CPUs apart.
	ByThread, ByCPU bool
	// Scope is which tasks to sample. Cgroup is a descriptor of an open
	// cgroup v2 directory for that scope.
	Scope  target.Scope
	Cgroup int
	// RingSize, CountEntries and SeenEntries size the maps; see the
	// defaults. RingSize and SeenEntries are rounded up to powers of two.
	RingSize, CountEntries, SeenEntries uint32
}

// Source is the loaded kernel side and the events attached to it.
type Source struct {
	objects bpf.OnCPUObjects
	ring    *ringbuf.Reader
	counts  *stacks.Counts
	events  *sampling.Events
	targets *sampling.TargetSet
	memory  uint64

	remaps remaps
}

// Unwind says what user stacks are walked by.
type Unwind = bpf.OnCPUUnwindMode

// What user stacks are walked by.
const (
	ByFramePointers = bpf.OnCPUUnwindModeUNWIND_BY_FRAME_POINTERS
	ByTables        = bpf.OnCPUUnwindModeUNWIND_BY_TABLES
	ByBoth          = bpf.OnCPUUnwindModeUNWIND_BY_BOTH
)

// Rate is how often to sample.
type Rate = sampling.Rate

// Load loads the program and its maps. Errors are the kernel's, as
// cilium/ebpf returns them.
func Load(o Options) (*Source, error) {
	spec, err := bpf.LoadOnCPU()
	if err != nil {
		return nil, err
	}
	sizeMaps(spec, o)
	if err := setVariables(spec, o); err != nil {
		return nil, err
	}
	s := &Source{}
	if err := spec.LoadAndAssign(&s.objects, &ebpf.CollectionOptions{MapReplacements: o.Tables, Cache: o.Types}); err != nil {
		return nil, err
	}
	if err := s.prepare(o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func sizeMaps(spec *ebpf.CollectionSpec, o Options) {
	spec.Maps[bpf.OnCPUMapRing].MaxEntries = ceilPower(max(o.RingSize, 4096))
	spec.Maps[bpf.OnCPUMapSeen].MaxEntries = seenSets(o)
	spec.Maps[bpf.OnCPUMapCounts0].MaxEntries = max(o.CountEntries, 1)
	spec.Maps[bpf.OnCPUMapCounts1].MaxEntries = max(o.CountEntries, 1)
	for name, m := range o.Tables {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
}

func seenSets(o Options) uint32 { return ceilPower(max(o.SeenEntries, seenWays)) / seenWays }

// ceilPower returns the smallest power of two that is at least n.
func ceilPower(n uint32) uint32 { return 1 << bits.Len32(n-1) }

func setVariables(spec *ebpf.CollectionSpec, o Options) error {
	for name, value := range map[string]any{
		bpf.OnCPUVarTarget:          sampling.TargetMode(o.Scope),
		bpf.OnCPUVarUnwind:          uint32(o.Unwind),
		bpf.OnCPUVarMaxDepth:        uint32(o.MaxDepth),
		bpf.OnCPUVarRingWakeup:      uint64(spec.Maps[bpf.OnCPUMapRing].MaxEntries) / 2,
		bpf.OnCPUVarSeenMask:        seenSets(o) - 1,
		bpf.OnCPUVarIncludeIdle:     o.Idle,
		bpf.OnCPUVarSkipKernelStack: o.SkipKernel,
		bpf.OnCPUVarSkipUserStack:   o.SkipUser,
		bpf.OnCPUVarByThread:        o.ByThread,
		bpf.OnCPUVarByCpu:           o.ByCPU,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s of the on-CPU program: %w", name, err)
		}
	}
	return nil
}

func (s *Source) prepare(o Options) error {
	if o.Scope == target.Cgroup {
		if err := s.objects.TargetCgroup.Put(uint32(0), uint32(o.Cgroup)); err != nil {
			return fmt.Errorf("target the cgroup: %w", err)
		}
	}
	ring, err := ringbuf.NewReader(s.objects.Ring)
	if err != nil {
		return err
	}
	s.ring = ring
	s.counts = stacks.NewCounts(s.objects.Counts0, s.objects.Counts1, s.objects.Active, s.objects.Inserted)
	s.memory = mapMemory(&s.objects.OnCPUMaps)
	return nil
}

// mapMemory sums what the kernel accounts for the maps, without those of unwind
// tables, in bytes; 0 where it does not say.
func mapMemory(m *bpf.OnCPUMaps) uint64 {
	var sum uint64
	for _, m := range []*ebpf.Map{m.Counts0, m.Counts1, m.OncpuScratch, m.Remaps, m.Ring, m.Seen, m.Stats, m.TargetIds} {
		info, err := m.Info()
		if err != nil {
			continue
		}
		if n, ok := info.Memlock(); ok {
			sum += n
		}
	}
	return sum
}

// MapMemory returns the memory of the BPF maps in bytes, as the kernel accounts
// it, without those of unwind tables.
func (s *Source) MapMemory() uint64 { return s.memory }

// Ring returns the ring that bodies and single samples come through.
func (s *Source) Ring() *ringbuf.Reader { return s.ring }

// Counts returns the counts by stack.
func (s *Source) Counts() *stacks.Counts { return s.counts }

// Stats are the kernel side's own counts, summed over CPUs.
type Stats struct {
	// Samples belong to the target, lost or not.
	Samples uint64
	// Losses has the causes that only the kernel side knows.
	Losses profile.Losses
}

// Stats reads the kernel side's counters.
func (s *Source) Stats() (Stats, error) {
	read := func(i bpf.OnCPUStat) (sum uint64, err error) {
		perCPU, err := s.statPerCPU(i)
		for _, n := range perCPU {
			sum += n
		}
		return sum, err
	}
	var st Stats
	var errs [6]error
	st.Samples, errs[0] = read(bpf.OnCPUStatSTAT_SAMPLES)
	st.Losses.Samples, errs[1] = read(bpf.OnCPUStatSTAT_LOST)
	st.Losses.Retries, errs[2] = read(bpf.OnCPUStatSTAT_RETRY)
	st.Losses.Overflows, errs[3] = read(bpf.OnCPUStatSTAT_EVENT)
	st.Losses.Untracked, errs[4] = read(bpf.OnCPUStatSTAT_UNTRACKED)
	st.Losses.Skipped, errs[5] = s.skipped()
	st.Losses.Untracked += s.targets.Untracked()
	st.Losses.Remaps = s.remaps.lost
	st.Losses.Throttled = s.events.Throttled()
	return st, errors.Join(errs[:]...)
}

// statPerCPU reads one of the kernel side's counters, by CPU.
func (s *Source) statPerCPU(i bpf.OnCPUStat) ([]uint64, error) {
	var perCPU []uint64
	if err := s.objects.Stats.Lookup(uint32(i), &perCPU); err != nil {
		return nil, fmt.Errorf("read the on-CPU program's counters: %w", err)
	}
	return perCPU, nil
}

func (s *Source) skipped() (uint64, error) {
	runs, err := s.statPerCPU(bpf.OnCPUStatSTAT_RUNS)
	if err != nil {
		return 0, err
	}
	periods, err := s.statPerCPU(bpf.OnCPUStatSTAT_PERIODS)
	if err != nil {
		return 0, err
	}
	return s.events.Skipped(runs, periods)
}

// Attach opens disabled events on the target's CPUs and attaches the program.
// specs are the events to sample, several where a hybrid machine has a PMU for
// each kind of core.
func (s *Source) Attach(t target.Target, specs []perfevent.Spec, rate Rate) (err error) {
	if s.targets, err = sampling.FillTargets(t, s.objects.TargetIds, s.objects.TargetFork, s.objects.TargetFree); err != nil {
		return err
	}
	s.events, err = sampling.Open(sampling.Config{Specs: specs, Rate: rate, CPUs: t.CPUs, Program: s.objects.Oncpu.FD()})
	return err
}

// Enable starts sampling.
func (s *Source) Enable() error { return s.events.Enable() }

// Disable stops sampling. When it returns no program runs any more.
func (s *Source) Disable() error { return s.events.Disable() }

// CheckThrottling counts how often the kernel paused sampling since the last
// call.
func (s *Source) CheckThrottling() error { return s.events.CheckThrottling() }

// FollowCPUs takes CPUs in that came online, also those that were offline for
// a moment only, and lets go of those that went offline. It is for a source
// that is enabled.
func (s *Source) FollowCPUs(online []int) error { return s.events.Follow(online) }

// Targets returns the processes or threads that are in the target set now.
func (s *Source) Targets() ([]int, error) { return s.targets.Members() }

// Close detaches the events and unloads the kernel side.
func (s *Source) Close() error {
	err := errors.Join(s.events.Close(), s.targets.Close())
	if s.ring != nil {
		err = errors.Join(err, s.ring.Close())
	}
	return errors.Join(err, s.objects.Close())
}
