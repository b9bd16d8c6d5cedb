// Package probe contains the common parts of sources that count stacks by ID: the
// maps and variables that each family of programs gets from bpf/stack.h, seen.h, ring.h, count.h,
// target.h, epoch.h, unwind.h and loss.h.
package probe

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/rules"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/profile"
)

// Default sizes of the kernel side's maps. At 4999 Hz on a busy machine, the ring
// holds the new stacks of more than a second, and count maps are drained long before
// they are full.
const (
	DefaultRingSize     = 1 << 20 // bytes
	DefaultCountEntries = 1 << 14 // per count map
	DefaultSeenEntries  = 1 << 16 // stack ids
)

// seenWays is the number of IDs in an entry of the table of sent stacks.
const seenWays = uint32(len(bpf.SeenSet{}.Ids))

// Options are the options of all families.
type Options struct {
	// Source is the index of the source in its run; see [stacks.Key].
	Source uint8
	// MaxDepth limits the frames of each half of a stack, from 1 to 127.
	MaxDepth int
	// SkipUser and SkipKernel omit one part of each stack. SkipKernel has no effect on
	// families that always need the kernel part.
	SkipUser, SkipKernel bool
	// Snapshots sends samples of processes without unwind tables as a [stacks.Snapshot],
	// in families that can.
	Snapshots bool
	// SkipRuntimes omits the frames of language runtimes.
	SkipRuntimes bool
	// Labels reads the labels of the running code. It has no effect without tables.
	Labels bool
	// LabelKey, if not "", is the only key whose values are needed. All other labels have empty
	// values then, so that sets that differ only in them are the same.
	LabelKey string
	// Unwind is the method for user stacks. Unless it uses frame pointers only,
	// Tables holds the maps of unwind tables.
	Unwind bpf.UnwindMode
	Tables map[string]*ebpf.Map
	// Rules judges processes; nil without rules. Few families can have rules.
	Rules *rules.Judge
	// Gate decides when the source counts. All sources of a run share it. nil gives the source
	// a gate of its own; see [Probe.Gate].
	Gate *Gate
	// Types caches the kernel's BTF; may be nil.
	Types *btf.Cache
	// Timeline sends each event with its time, instead of counting in the
	// kernel.
	Timeline bool
	// FromStart is set if the target is a command that has not run anything when the
	// measurement begins.
	FromStart bool
	// ByThread and ByCPU distinguish threads and CPUs. ByCgroup distinguishes the
	// cgroups of processes, in the stacks themselves.
	ByThread, ByCPU, ByCgroup bool
	// Scope selects the tasks to measure. For a cgroup, Cgroup is a descriptor
	// of the open cgroup v2 directory, and CgroupID its inode number.
	Scope    target.Scope
	Cgroup   int
	CgroupID uint64
	// RingSize, CountEntries and SeenEntries are map sizes; see the defaults.
	// RingSize and SeenEntries are rounded up to powers of two.
	RingSize, CountEntries, SeenEntries uint32
}

// errNoRules means that a family of probes does not judge processes by rules.
var errNoRules = errors.New("this measurement cannot have rules that include or exclude processes")

// Probe is a family of programs in the kernel. It is not safe for concurrent
// use.
type Probe struct {
	*ebpf.Collection

	gate    *Gate
	owned   *Gate // gate, if it is not shared
	ring    *ringbuf.Reader
	counts  *stacks.Counts
	targets *sampling.TargetSet
	remaps  remaps
	links   []link.Link     // to tracepoints
	traced  []*ebpf.Program // that were attached to tracepoints
	memory  uint64
	types   *btf.Cache // until LoadLater or Settle; may be nil

	timeline   bool   // see [Options]
	generation uint32 // of stack IDs
}

// Load loads the programs and maps of spec. Before, it sets the variables common to
// all families, and those in variables. K and V are the types of keys and values in
// count maps, which convert decodes. Load returns the kernel's errors as cilium/ebpf
// does.
func Load[K, V any](spec *ebpf.CollectionSpec, o Options, variables map[string]any, convert func(K, V) (stacks.Key, stacks.Values)) (*Probe, error) {
	spec.Maps[bpf.MapRing].MaxEntries = ceilPower(max(o.RingSize, 4096))
	spec.Maps[bpf.MapSeen].MaxEntries = seenSets(o)
	if o.Timeline {
		o.CountEntries = 1 // nothing is counted
	}
	spec.Maps[bpf.MapCounts0].MaxEntries = max(o.CountEntries, 1)
	spec.Maps[bpf.MapCounts1].MaxEntries = max(o.CountEntries, 1)
	shared := o.Rules.Replacements()
	if len(shared) > 0 && spec.Variables[bpf.VarRulesInclude] == nil {
		return nil, errNoRules
	}
	maps.Copy(shared, o.Tables)
	for name, m := range shared {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	shrinkUnused(spec, o)
	for _, vs := range []map[string]any{common(spec, o), o.Rules.Variables(), variables} {
		for name, value := range vs {
			if err := spec.Variables[name].Set(value); err != nil {
				return nil, fmt.Errorf("set %s of a BPF program: %w", name, err)
			}
		}
	}
	if o.Scope == target.System || o.Scope == target.Cgroup {
		// There is no set of targets to maintain.
		delete(spec.Programs, bpf.OnCPUProgTargetFork)
		delete(spec.Programs, bpf.OnCPUProgTargetFree)
	}
	gate, owned := o.Gate, (*Gate)(nil)
	if gate == nil {
		var err error
		if gate, err = NewGate(); err != nil {
			return nil, err
		}
		owned = gate
	}
	options := ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{bpf.MapGate: gate.times}, Cache: o.Types}
	maps.Copy(options.MapReplacements, shared)
	memlock.Lift()
	if err := bpf.UsePIDNamespace(spec, &options); err != nil {
		return nil, errors.Join(err, owned.Close())
	}
	loaded, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		return nil, errors.Join(err, owned.Close())
	}
	p := &Probe{Collection: loaded, gate: gate, owned: owned, timeline: o.Timeline, memory: mapMemory(loaded.Maps, shared), types: o.Types}
	p.counts = stacks.NewCounts(stacks.Maps{
		First:    p.Maps[bpf.MapCounts0],
		Second:   p.Maps[bpf.MapCounts1],
		Active:   p.Variables[bpf.VarActive],
		Inserted: p.Variables[bpf.VarInserted],
	}, o.Source, convert)
	if p.ring, err = ringbuf.NewReader(p.Maps[bpf.MapRing]); err == nil && o.Scope == target.Cgroup {
		if err = p.Maps[bpf.MapTargetCgroup].Put(uint32(0), uint32(o.Cgroup)); err != nil {
			err = fmt.Errorf("target the cgroup: %w", err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Later is programs that are loaded in the background.
type Later struct {
	done     chan struct{}
	programs *ebpf.Collection
	err      error
}

// LoadLater begins to load programs of a spec that were removed from it before [Load],
// since the kernel takes long to verify them. They share the maps and variables of the
// other programs. It is called at most once, and [Probe.Add] must follow.
func (p *Probe) LoadLater(spec *ebpf.CollectionSpec) *Later {
	l := &Later{done: make(chan struct{})}
	o := ebpf.CollectionOptions{MapReplacements: p.Maps, Cache: p.types}
	p.types = nil // megabytes
	go func() {
		defer close(l.done)
		memlock.Lift()
		l.programs, l.err = ebpf.NewCollectionWithOptions(spec, o)
	}()
	return l
}

// Settle frees the types of the kernel, which take megabytes. If [Probe.LoadLater] is called
// afterwards, it parses them again.
func (p *Probe) Settle() { p.types = nil }

// Done reports whether the programs are loaded, or cannot be.
func (l *Later) Done() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// Add waits for programs and adds them to p, which closes them with the others.
func (p *Probe) Add(l *Later) error {
	<-l.done
	if l.err != nil {
		return fmt.Errorf("load more BPF programs: %w", l.err)
	}
	defer l.programs.Close()
	for name := range l.programs.Programs {
		p.Programs[name] = l.programs.DetachProgram(name)
	}
	return nil
}

// common returns the variables common to all or several families, with their values.
func common(spec *ebpf.CollectionSpec, o Options) map[string]any {
	variables := map[string]any{
		bpf.VarTarget:         sampling.TargetMode(o.Scope),
		bpf.VarTargetCgroupID: o.CgroupID,
		bpf.VarUnwind:         uint32(o.Unwind),
		bpf.VarMaxDepth:       uint32(o.MaxDepth),
		bpf.VarRingWakeup:     uint64(spec.Maps[bpf.MapRing].MaxEntries) / 2,
		bpf.VarSeenMask:       seenSets(o) - 1,
		bpf.VarSkipUserStack:  o.SkipUser,
		bpf.VarSkipRuntimes:   o.SkipRuntimes,
		bpf.VarReadLabels:     o.Labels,
		bpf.VarSkipTraceID:    o.LabelKey != "" && o.LabelKey != profile.TraceID,
		bpf.VarSkipSpanID:     o.LabelKey != "" && o.LabelKey != profile.SpanID,
		bpf.VarTimeline:       o.Timeline,
		bpf.VarByThread:       o.ByThread,
		bpf.VarByCPU:          o.ByCPU,
		bpf.VarByCgroup:       o.ByCgroup,
	}
	if key := make([]byte, labelKeySize); len(o.LabelKey) <= len(key) {
		copy(key, o.LabelKey)
		variables[bpf.VarLabelKey] = key
		variables[bpf.VarLabelKeySize] = uint16(len(o.LabelKey))
	}
	for name, value := range map[string]bool{bpf.VarSkipKernelStack: o.SkipKernel, bpf.VarSnapshots: o.Snapshots} {
		if spec.Variables[name] != nil {
			variables[name] = value
		}
	}
	return variables
}

// labelKeySize is the number of bytes of a key that the kernel side compares.
const labelKeySize = len(bpf.OnCPULabel{}.Key)

func seenSets(o Options) uint32 { return ceilPower(max(o.SeenEntries, seenWays)) / seenWays }

// ceilPower returns the smallest power of two that is at least n.
func ceilPower(n uint32) uint32 { return 1 << bits.Len32(n-1) }

// mapMemory returns the kernel's accounting of the maps except shared ones, in
// bytes; 0 if the kernel reports none.
func mapMemory(all, shared map[string]*ebpf.Map) (sum uint64) {
	for name, m := range all {
		if shared[name] != nil || name == bpf.MapTargetCgroup || m.Type() == ebpf.Array && m.Flags() != 0 {
			continue // tiny, or a program's variables
		}
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

// MapMemory returns the memory of the BPF maps in bytes, as the kernel accounts it,
// without unwind tables.
func (p *Probe) MapMemory() uint64 { return p.memory }

// Gate returns the gate that decides when the source counts.
func (p *Probe) Gate() *Gate { return p.gate }

// Ring returns the ring for traces and single samples.
func (p *Probe) Ring() ringbuf.Ring { return p.ring }

// Counts returns the counts by stack.
func (p *Probe) Counts() *stacks.Counts { return p.counts }

// Renew makes the kernel side assign new IDs to all stacks and send their traces
// again, for callers that discard the traces so far. Running programs may still use
// an old ID.
func (p *Probe) Renew() error {
	p.generation++
	if err := p.Variables[bpf.VarGeneration].Set(p.generation); err != nil {
		return fmt.Errorf("renew stack IDs: %w", err)
	}
	return nil
}

// FillTargets adds the target to the kernel side's set, and tracks its forks and
// exits.
func (p *Probe) FillTargets(t target.Target) (err error) {
	p.targets, err = sampling.FillTargets(t, p.Maps[bpf.MapTargetIDs], p.Variables[bpf.VarTargetOnly], p.Programs[bpf.ProgTargetFork], p.Programs[bpf.ProgTargetFree])
	return err
}

// Targets returns the processes or threads that are currently in the target set.
func (p *Probe) Targets() ([]int, error) { return p.targets.Members() }

// AttachTracing attaches the named programs to their tracepoints, until [Probe.Detach].
func (p *Probe) AttachTracing(names ...string) error {
	for _, name := range names {
		l, err := link.AttachTracing(link.TracingOptions{Program: p.Programs[name]})
		if err != nil {
			return errors.Join(fmt.Errorf("attach %s: %w", name, err), p.Detach())
		}
		p.links = append(p.links, l)
		p.traced = append(p.traced, p.Programs[name])
	}
	return nil
}

// Detach detaches the programs that [Probe.AttachTracing] attached. Running ones may still
// run for a moment.
func (p *Probe) Detach() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = nil
	return errors.Join(errs...)
}

// Stats holds the kernel side's counters, summed over CPUs.
type Stats struct {
	// Samples is the number of samples of the target, lost or not.
	Samples uint64
	// Losses holds the losses that only the kernel side can count.
	Losses profile.Losses
	// Excluded is the number of samples that rules left out, and ExcludedPeriods the sum of their
	// periods.
	Excluded, ExcludedPeriods uint64
	// Thinned is the number of samples that rules with lower rates left to others.
	Thinned uint64
}

// Stats reads the kernel side's counters.
func (p *Probe) Stats() (Stats, error) {
	var st Stats
	var errs []error
	lost := &st.Losses[profile.LossSamples]
	if p.timeline {
		lost = &st.Losses[profile.LossUnsent]
	}
	for stat, to := range map[bpf.Stat]*uint64{
		bpf.StatSamples:  &st.Samples,
		bpf.StatExcluded: &st.Excluded, bpf.StatExcludedTime: &st.ExcludedPeriods,
		bpf.StatThinned:    &st.Thinned,
		bpf.StatLost:       lost,
		bpf.StatRetry:      &st.Losses[profile.LossRetries],
		bpf.StatEvent:      &st.Losses[profile.LossOverflows],
		bpf.StatUntracked:  &st.Losses[profile.LossUntracked],
		bpf.StatUnfollowed: &st.Losses[profile.LossUnfollowed],
		bpf.StatMissed:     &st.Losses[profile.LossMissed],
		bpf.StatLimited:    &st.Losses[profile.LossLimited],
		bpf.StatCrowded:    &st.Losses[profile.LossSkipped],
		bpf.StatUnlabeled:  &st.Losses[profile.LossUnlabeled],
		bpf.StatUnsearched: &st.Losses[profile.LossUnsearched],
	} {
		n, err := p.StatSum(stat)
		*to += n
		errs = append(errs, err)
	}
	for _, program := range p.traced {
		missed, err := missedRuns(program)
		st.Losses[profile.LossSkipped] += missed
		errs = append(errs, err)
	}
	st.Losses[profile.LossUntracked] += p.targets.Untracked()
	st.Losses[profile.LossRemaps] = p.remaps.lost
	return st, errors.Join(errs...)
}

// missedRuns returns how often the kernel skipped a program because it was already
// running on the CPU.
func missedRuns(program *ebpf.Program) (uint64, error) {
	stats, err := program.Stats()
	if err != nil {
		return 0, fmt.Errorf("read the missed runs of a BPF program: %w", err)
	}
	return stats.RecursionMisses, nil
}

// StatPerCPU reads a counter of the kernel side, by CPU.
func (p *Probe) StatPerCPU(i bpf.Stat) ([]uint64, error) {
	return sampling.StatPerCPU(p.Maps[bpf.MapStats], i)
}

// StatSum reads a counter of the kernel side, summed over CPUs.
func (p *Probe) StatSum(i bpf.Stat) (sum uint64, err error) {
	perCPU, err := p.StatPerCPU(i)
	for _, n := range perCPU {
		sum += n
	}
	return sum, err
}

// Close detaches and unloads the kernel side.
func (p *Probe) Close() error {
	err := errors.Join(p.Detach(), p.targets.Close(), p.owned.Close())
	if p.ring != nil {
		err = errors.Join(err, p.ring.Close())
	}
	p.Collection.Close()
	return err
}
