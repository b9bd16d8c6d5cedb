package jumps

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/sampling"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/uprobe"
	"fulgur/internal/linux/memlock"
	"fulgur/internal/linux/perfevent"
)

const (
	// maxJumps is the maximum number of jumps that can be counted.
	maxJumps = 1 << 16
	// maxTargets is the maximum number of distinct targets of indirect jumps.
	maxTargets = 1 << 20
)

// ErrUnsupported means that this machine cannot count jumps.
var ErrUnsupported = errors.New("cannot count jumps here")

// Check returns an error that wraps [ErrUnsupported] if jumps cannot be counted by p, which is
// [Uprobes] or [Breakpoints], on this machine or with its kernel. If the user may not count
// them, the error also wraps [uprobe.ErrLent].
func Check(p Probes) error {
	if err := uprobe.CheckPrivileges(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if p == Breakpoints {
		return checkBreakpoints()
	}
	if !hasUprobes {
		return fmt.Errorf("%w: uprobes need an x86-64 processor", ErrUnsupported)
	}
	memlock.Lift() // the kernel has to load a program for the answer
	if err := features.HaveBPFLinkUprobeMulti(); err != nil {
		if errors.Is(err, ebpf.ErrNotSupported) {
			return fmt.Errorf("%w: it needs Linux 6.6 or newer (uprobe_multi links)", ErrUnsupported)
		}
		return fmt.Errorf("find out whether the kernel has uprobe_multi links: %w", err)
	}
	return nil
}

// kernelSide is the loaded kernel side.
type kernelSide struct {
	objects bpf.JumpObjects
	targets *sampling.TargetSet
	events  *sampling.Events
	stalls  link.Link
	mapped  []byte
	counts  []bpf.JumpJumpCount // shared with the kernel
}

// load loads the kernel side and attaches everything but the probes. Sampling is not
// enabled.
func load(o Options) (_ *kernelSide, err error) {
	spec, err := bpf.LoadJump()
	if err != nil {
		return nil, err
	}
	if o.Probes == Breakpoints {
		// The program of uprobes needs a newer kernel. This one takes its place, unused.
		spec.Programs[bpf.JumpProgJumpHit] = spec.Programs[bpf.JumpProgJumpBreak]
	} else {
		spec.Programs[bpf.JumpProgJumpHit].AttachType = ebpf.AttachTraceUprobeMulti
	}
	spec.Maps[bpf.JumpMapJumpCounts].MaxEntries = maxJumps
	spec.Maps[bpf.JumpMapJumpOperands].MaxEntries = maxJumps
	if err := spec.Variables[bpf.VarTarget].Set(sampling.TargetMode(o.Target.Scope)); err != nil {
		return nil, err
	}
	cgroup, err := target.OpenCgroup(o.Target)
	if err != nil {
		return nil, err
	}
	defer cgroup.Close()
	if err := spec.Variables[bpf.VarTargetCgroupID].Set(cgroup.ID); err != nil {
		return nil, err
	}
	memlock.Lift()
	var options ebpf.CollectionOptions
	if err := bpf.UsePIDNamespace(spec, &options); err != nil {
		return nil, err
	}
	s := &kernelSide{}
	if err := spec.LoadAndAssign(&s.objects, &options); err != nil {
		return nil, fmt.Errorf("load the programs that count jumps: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if o.Target.Scope == target.Cgroup {
		if err := s.objects.TargetCgroup.Put(uint32(0), uint32(cgroup.FD)); err != nil {
			return nil, fmt.Errorf("target the cgroup: %w", err)
		}
	}
	s.mapped, err = unix.Mmap(s.objects.JumpCounts.FD(), 0, maxJumps*int(unsafe.Sizeof(bpf.JumpJumpCount{})), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the counts of jumps: %w", err)
	}
	s.counts = unsafe.Slice((*bpf.JumpJumpCount)(unsafe.Pointer(&s.mapped[0])), maxJumps)
	if s.targets, err = sampling.FillTargets(o.Target, s.objects.TargetIds, s.objects.TargetOnly, s.objects.TargetFork, s.objects.TargetFree); err != nil {
		return nil, err
	}
	if o.Probes != Breakpoints {
		if s.stalls, err = link.AttachTracing(link.TracingOptions{Program: s.objects.JumpStall}); err != nil {
			return nil, fmt.Errorf("watch for stalls of the target: %w", err)
		}
	}
	clock, err := perfevent.ParseEvent("cpu-clock")
	if err != nil {
		return nil, err
	}
	clock.ExcludeKernel = true
	s.events, err = sampling.Open(sampling.Config{
		Specs:   []perfevent.Spec{clock},
		Rate:    sampling.Rate{Frequency: o.Frequency},
		CPUs:    o.Target.CPUs,
		Program: s.objects.JumpSample.FD(),
	})
	return s, err
}

// close detaches everything and unloads the kernel side.
func (s *kernelSide) close() error {
	err := errors.Join(s.events.Close(), s.targets.Close())
	if s.stalls != nil {
		err = errors.Join(err, s.stalls.Close())
	}
	if s.mapped != nil {
		err = errors.Join(err, unix.Munmap(s.mapped))
	}
	return errors.Join(err, s.objects.Close())
}

// count returns the hits of a jump so far, and how often it was taken.
func (s *kernelSide) count(index uint32) (hits, taken uint64) {
	c := &s.counts[index]
	return atomic.LoadUint64(&c.Hits), atomic.LoadUint64(&c.Taken)
}

// progress returns the number of samples of the target's code so far, without and with
// probes.
func (s *kernelSide) progress() (sums [2]uint64, err error) {
	for phase := range sums {
		var perCPU []uint64
		if err := s.objects.JumpProgress.Lookup(uint32(phase), &perCPU); err != nil {
			return sums, fmt.Errorf("read the target's progress: %w", err)
		}
		for _, n := range perCPU {
			sums[phase] += n
		}
	}
	return sums, nil
}

// lost returns the number of samples and of targets of indirect jumps for which the
// kernel side had no room.
func (s *kernelSide) lost() (sum uint64, err error) {
	perCPU, err := sampling.StatPerCPU(s.objects.Stats, bpf.StatLost)
	if err != nil {
		return 0, err
	}
	for _, n := range perCPU {
		sum += n
	}
	return sum, nil
}

// drain calls yield with each entry of m and deletes it.
func drain[K comparable](m *ebpf.Map, yield func(k K, n uint64)) error {
	const batch = 4096
	keys, values := make([]K, batch), make([]uint64, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookupAndDelete(&cursor, keys, values, nil)
		for i := range n {
			yield(keys[i], values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read counts: %w", err)
		}
	}
}
