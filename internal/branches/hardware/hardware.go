// Package hardware samples branch records: the most recent branches, as recorded by a
// PMU, which bpf/branch.bpf.c passes on with each perf event.
//
// Whole samples go to user space and are counted there. Counting traces in a hash
// map of the kernel side, as for stacks, turned out to be more expensive, and runs
// in the interrupt: a sample of 32 records takes 32 look-ups in a map that exceeds
// all caches, 1.4 µs for 1000 different traces, 3.8 µs for 20 000 and 6 µs for 100
// 000, plus the draining. Copying a sample to a ring takes 0.15 µs, and counting it
// from there 1.2 µs for 20 000 traces (BenchmarkSample in
// package branches). User space uses a smaller table, outside of the
// interrupt, and has the mappings of the sample's time at hand. Measured on an AMD
// EPYC with Linux 6.18.
package hardware

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/cilium/ebpf"

	"fulgur/internal/bolt"
	"fulgur/internal/bpf"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/ringbuf"
)

// Options configure the kernel side.
type Options struct {
	// Scope selects the tasks to sample. For a cgroup, Cgroup is a descriptor of
	// the open cgroup v2 directory.
	Scope  target.Scope
	Cgroup int
	// Kernel also samples kernel threads, for events in the kernel.
	Kernel bool
	// RingSize is the size in bytes of each CPU's ring, rounded up to a power of
	// two; 0 means the default.
	RingSize uint32
}

// Source is the loaded kernel side and the events attached to it. It is not
// safe for concurrent use.
type Source struct {
	objects bpf.BranchObjects
	rings   []ring
	events  *sampling.Events
	targets *sampling.TargetSet
	entries []bolt.Entry // of the current sample
}

// ring receives the samples of a CPU.
type ring struct {
	samples *ebpf.Map
	reader  *ringbuf.Reader
	until   uint64 // position noted by Mark
}

// Limits of ring sizes. At the highest rate that kernels allow, 100 kHz, the maximum
// holds samples of about 13 ms. A sample of 32 records takes 784 bytes.
const (
	minRing  = 128 << 10 // bytes
	maxRing  = 1 << 20
	allRings = 16 << 20
)

// Load loads the program and its maps. It returns the kernel's errors as cilium/ebpf
// does.
func Load(o Options) (*Source, error) {
	spec, err := bpf.LoadBranch()
	if err != nil {
		return nil, err
	}
	cpus, err := perfevent.OnlineCPUs()
	if err != nil {
		return nil, err
	}
	size := ceilPower(o.RingSize)
	if o.RingSize == 0 {
		size = ceilPower(uint32(min(max(allRings/len(cpus), minRing), maxRing)))
	}
	rings := spec.Maps[bpf.BranchMapRings]
	rings.MaxEntries = uint32(len(cpus))
	rings.InnerMap.MaxEntries = size
	for name, value := range map[string]any{
		bpf.VarTarget:               sampling.TargetMode(o.Scope),
		bpf.BranchVarRingCount:      rings.MaxEntries,
		bpf.BranchVarKernelBranches: o.Kernel,
		bpf.VarRingWakeup:           uint64(size) / 2,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s of the branch program: %w", name, err)
		}
	}
	memlock.Lift()
	var options ebpf.CollectionOptions
	if err := bpf.UsePIDNamespace(spec, &options); err != nil {
		return nil, err
	}
	s := &Source{}
	if err := spec.LoadAndAssign(&s.objects, &options); err != nil {
		return nil, err
	}
	if err := s.prepare(o, rings.InnerMap); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// ceilPower returns the smallest power of two that is at least n.
func ceilPower(n uint32) uint32 { return 1 << bits.Len32(n-1) }

func (s *Source) prepare(o Options, inner *ebpf.MapSpec) error {
	if o.Scope == target.Cgroup {
		if err := s.objects.TargetCgroup.Put(uint32(0), uint32(o.Cgroup)); err != nil {
			return fmt.Errorf("target the cgroup: %w", err)
		}
	}
	for i := range s.objects.Rings.MaxEntries() {
		m, err := ebpf.NewMap(inner)
		if err != nil {
			return fmt.Errorf("create a ring of %d bytes: %w", inner.MaxEntries, err)
		}
		s.rings = append(s.rings, ring{samples: m})
		if err := s.objects.Rings.Put(i, m); err != nil {
			return fmt.Errorf("hand a ring to the branch program: %w", err)
		}
		if s.rings[i].reader, err = ringbuf.NewReader(m); err != nil {
			return err
		}
	}
	return nil
}

// Attach opens disabled events on the target's CPUs and attaches the program.
func (s *Source) Attach(t target.Target, e Event) (err error) {
	if s.targets, err = sampling.FillTargets(t, s.objects.TargetIds, s.objects.TargetOnly, s.objects.TargetFork, s.objects.TargetFree); err != nil {
		return err
	}
	s.events, err = sampling.Open(sampling.Config{
		Specs:            e.Specs,
		Rate:             e.Rate,
		CPUs:             t.CPUs,
		BranchSampleType: e.sampleType(),
		Program:          s.objects.Branch.FD(),
	})
	return err
}

// Enable starts sampling.
func (s *Source) Enable() error { return s.events.Enable() }

// Disable stops sampling. When it returns, no program runs any more.
func (s *Source) Disable() error { return s.events.Disable() }

// CheckThrottling counts how often the kernel has paused sampling since the last
// call.
func (s *Source) CheckThrottling() error { return s.events.CheckThrottling() }

// FollowCPUs adds CPUs that came online, including those that were offline only for
// a moment, and removes those that went offline. The source must be enabled.
func (s *Source) FollowCPUs(online []int) error { return s.events.Follow(online) }

// Targets returns the processes or threads that are currently in the target set.
func (s *Source) Targets() ([]int, error) { return s.targets.Members() }

// FDs returns descriptors that become readable when a ring is half full.
func (s *Source) FDs() []int {
	fds := make([]int, len(s.rings))
	for i, r := range s.rings {
		fds[i] = r.reader.FD()
	}
	return fds
}

// Mark notes the current end of the rings for [Source.Read]. It returns the fill
// level of the fullest ring, from 0 to 1.
func (s *Source) Mark() (fill float64) {
	for i := range s.rings {
		r := &s.rings[i]
		r.until = r.reader.Position()
		fill = max(fill, float64(r.reader.Pending())/float64(r.reader.Size()))
	}
	return fill
}

// Read calls fn with the samples before the last [Source.Mark], in order for each
// CPU. It stops at fn's first error. A sample is valid until the next one.
func (s *Source) Read(fn func(bolt.Sample) error) error {
	const head = unsafe.Sizeof(bpf.BranchBranchHead{})
	for _, r := range s.rings {
		err := r.reader.ReadTo(r.until, func(record []byte) error {
			h, err := ringbuf.As[bpf.BranchBranchHead](record, head)
			if err != nil {
				return err
			}
			s.entries = bolt.AppendEntries(s.entries[:0], record[head:])
			return fn(bolt.Sample{Time: h.Time, PID: int(h.Pid), Entries: s.entries})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Stats holds the kernel side's counters, summed over CPUs.
type Stats struct {
	// Samples is the number of samples of the target. Empty of them had no
	// branch records, and Lost of them met a full ring.
	Samples, Empty, Lost uint64
	// Skipped is the number of samples of all processes that the kernel did not
	// take. Throttled is how often it is known to have paused sampling.
	Skipped, Throttled uint64
	// Untracked is the number of children for which the target set had no room.
	Untracked uint64
}

// Stats reads the kernel side's counters.
func (s *Source) Stats() (Stats, error) {
	var st Stats
	for i, sum := range map[bpf.Stat]*uint64{
		bpf.StatSamples:   &st.Samples,
		bpf.StatEmpty:     &st.Empty,
		bpf.StatLost:      &st.Lost,
		bpf.StatUntracked: &st.Untracked,
	} {
		perCPU, err := s.statPerCPU(i)
		if err != nil {
			return st, err
		}
		for _, n := range perCPU {
			*sum += n
		}
	}
	runs, err := s.statPerCPU(bpf.StatRuns)
	if err != nil {
		return st, err
	}
	periods, err := s.statPerCPU(bpf.StatPeriods)
	if err != nil {
		return st, err
	}
	st.Skipped, err = s.events.Skipped(runs, periods, nil)
	st.Throttled = s.events.Throttled()
	st.Untracked += s.targets.Untracked()
	return st, err
}

// statPerCPU reads a counter of the kernel side, by CPU.
func (s *Source) statPerCPU(i bpf.Stat) ([]uint64, error) {
	return sampling.StatPerCPU(s.objects.Stats, i)
}

// Close detaches the events and unloads the kernel side.
func (s *Source) Close() error {
	err := errors.Join(s.events.Close(), s.targets.Close())
	for _, r := range s.rings {
		if r.reader != nil {
			err = errors.Join(err, r.reader.Close())
		}
		err = errors.Join(err, r.samples.Close())
	}
	return errors.Join(err, s.objects.Close())
}
