// Package branch samples branch records: perf events on a PMU that keeps the
// last branches taken, handed over by bpf/branch.bpf.c.
//
// Samples cross to user space whole and are counted there. Counting traces in a
// hash map of the kernel side, as stacks are, was measured and costs more,
// within the interrupt: a sample of 32 records is 32 look-ups in a map that no
// cache holds, 1.4 µs for 1000 different traces, 3.8 µs for 20 000 and 6 µs for
// 100 000, besides the draining. To copy it into a ring takes 0.15 µs, and to
// count it from there 1.2 µs for 20 000 traces (BenchmarkSample in
// internal/session/boltprofile), in a smaller table, outside of the interrupt, with the
// mappings of the sample's time at hand (AMD EPYC, Linux 6.18).
package branch

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/bpf"
	"fulgur/internal/bolt"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/ringbuf"
)

// Options configure the kernel side.
type Options struct {
	// Scope is which tasks to sample. Cgroup is a descriptor of an open
	// cgroup v2 directory for that scope.
	Scope  target.Scope
	Cgroup int
	// RingSize is the size in bytes of the ring that each CPU has, rounded up
	// to a power of two; 0 chooses one.
	RingSize uint32
}

// Source is the loaded kernel side and the events attached to it. It is not
// safe for concurrent use.
type Source struct {
	objects bpf.BranchObjects
	rings   []ring
	events  *sampling.Events
	targets *sampling.TargetSet
	entries []bolt.Entry // of the sample being read
}

// ring is what the samples of a CPU come through.
type ring struct {
	samples *ebpf.Map
	reader  *ringbuf.Reader
	until   uint64 // the position that Mark noted
}

// The sizes that rings are given: for a sample of 32 records, 784 bytes, at
// the highest rate that kernels allow, 100 kHz, the most holds some 13 ms.
const (
	minRing  = 128 << 10 // bytes
	maxRing  = 1 << 20
	allRings = 16 << 20
)

// Load loads the program and its maps. Errors are the kernel's, as
// cilium/ebpf returns them.
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
		bpf.VarTarget:          sampling.TargetMode(o.Scope),
		bpf.BranchVarRingCount: rings.MaxEntries,
		bpf.VarRingWakeup:      uint64(size) / 2,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s of the branch program: %w", name, err)
		}
	}
	memlock.Lift()
	s := &Source{}
	if err := spec.LoadAndAssign(&s.objects, nil); err != nil {
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
	if s.targets, err = sampling.FillTargets(t, s.objects.TargetIds, s.objects.TargetFork, s.objects.TargetFree); err != nil {
		return err
	}
	s.events, err = sampling.Open(sampling.Config{
		Specs:            e.Specs,
		Rate:             e.Rate,
		CPUs:             t.CPUs,
		BranchSampleType: sampleType,
		Program:          s.objects.Branch.FD(),
	})
	return err
}

// sampleType asks for all sorts of branches of user code.
const sampleType = unix.PERF_SAMPLE_BRANCH_USER | unix.PERF_SAMPLE_BRANCH_ANY

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

// FDs returns the descriptors that poll as readable when a ring is half full.
func (s *Source) FDs() []int {
	fds := make([]int, len(s.rings))
	for i, r := range s.rings {
		fds[i] = r.reader.FD()
	}
	return fds
}

// Sample is a branch stack.
type Sample struct {
	// Time is the time of CLOCK_MONOTONIC at which it was taken, in ns.
	Time uint64
	// PID is the process.
	PID int
	// Entries are the branches, newest first, valid until the next sample.
	Entries []bolt.Entry
}

// Mark notes which samples there are by now, for [Source.Read]. It returns how
// full the fullest ring is, from 0 to 1.
func (s *Source) Mark() (fill float64) {
	for i := range s.rings {
		r := &s.rings[i]
		r.until = r.reader.Position()
		fill = max(fill, float64(r.reader.Pending())/float64(r.reader.Size()))
	}
	return fill
}

// Read calls fn with the samples that were there at the last [Source.Mark].
// Those of a CPU come in their order. It stops at fn's first error.
func (s *Source) Read(fn func(Sample) error) error {
	const head = unsafe.Sizeof(bpf.BranchBranchHead{})
	for _, r := range s.rings {
		err := r.reader.ReadTo(r.until, func(record []byte) error {
			h, err := ringbuf.As[bpf.BranchBranchHead](record, head)
			if err != nil {
				return err
			}
			s.entries = bolt.AppendEntries(s.entries[:0], record[head:])
			return fn(Sample{Time: h.Time, PID: int(h.Pid), Entries: s.entries})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Stats are the kernel side's own counts, summed over CPUs.
type Stats struct {
	// Samples belong to the target. Empty are those of them that came without
	// branch records, and Lost those that met a full ring.
	Samples, Empty, Lost uint64
	// Skipped is the number of samples, of whatever process, that the kernel
	// did not take, and Throttled how often it is known to have paused.
	Skipped, Throttled uint64
	// Untracked is the number of children that the target set had no room
	// for.
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

// statPerCPU reads one of the kernel side's counters, by CPU.
func (s *Source) statPerCPU(i bpf.Stat) ([]uint64, error) {
	var perCPU []uint64
	if err := s.objects.Stats.Lookup(uint32(i), &perCPU); err != nil {
		return nil, fmt.Errorf("read the branch program's counters: %w", err)
	}
	return perCPU, nil
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
