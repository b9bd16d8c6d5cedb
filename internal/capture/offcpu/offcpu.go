// Package offcpu measures waits of threads: the time from leaving a CPU to running
// again, by the stack at which the thread left, with bpf/offcpu.bpf.c.
package offcpu

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/distribution"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/rcu"
	"fulgur/internal/profile/encode/histogram"
)

// DefaultPendingEntries is the default limit of waiting threads to track.
const DefaultPendingEntries = 1 << 14

// Details of this source's keys. With peers, the ID of the peer is in the bits from peerShift on.
const (
	// Slept means that the thread gave up its CPU.
	Slept = 1
	// Preempted means that another thread took the CPU, and the thread waited
	// for one.
	Preempted = 2

	peerShift = 2
)

// Threads selects the kind of threads to measure.
type Threads uint32

// Kinds of threads.
const (
	AllThreads    = Threads(bpf.OffCPUThreadKindTHREADS_ALL)
	UserThreads   = Threads(bpf.OffCPUThreadKindTHREADS_USER)
	KernelThreads = Threads(bpf.OffCPUThreadKindTHREADS_KERNEL)
)

var _ interface {
	source.Source
	source.Reducible
	source.Waiting
	source.Splitter
	source.Recordable
	source.EventPlacer
} = (*Source)(nil)

// Source is the loaded kernel side.
type Source struct {
	source.Base
	// reducing is set while not all waits are measured, and reduced if waits in progress may be among
	// those that are not.
	reducing, reduced bool
	peers             map[uint64]string // by ID
}

// Load loads the programs and their maps. It returns the kernel's errors as
// cilium/ebpf does.
func Load(o probe.Options, c Config) (*Source, error) {
	spec, err := bpf.LoadOffCPU()
	if err != nil {
		return nil, err
	}
	variables, err := probe.AdaptWaits(spec, o.Types)
	if err != nil {
		return nil, err
	}
	if err := adapt(spec, o.Types); err != nil {
		return nil, err
	}
	if o.FromStart {
		delete(spec.Programs, bpf.OffCPUProgOffcpuBegin) // nothing waits yet
	}
	if !c.Peers {
		spec.Maps[bpf.OffCPUMapPeers].MaxEntries = 1
	}
	spec.Maps[bpf.OffCPUMapThreads].MaxEntries = max(c.PendingEntries, 1)
	longest := uint64(math.MaxUint64)
	if c.Longest > 0 {
		longest = uint64(c.Longest)
	}
	maps.Copy(variables, map[string]any{
		bpf.OffCPUVarKind:     uint32(c.Threads),
		bpf.OffCPUVarStates:   uint32(c.States),
		bpf.OffCPUVarShortest: uint64(c.Shortest),
		bpf.OffCPUVarLongest:  longest,
		bpf.OffCPUVarByWaker:  c.WakerStacks,
		bpf.OffCPUVarByPeer:   c.Peers,

		bpf.OffCPUVarDistributes: c.RunQueue,
	})
	convert := counted
	if c.Peers {
		convert = countedByPeer
	}
	p, err := probe.Load(spec, o, variables, convert)
	if err != nil {
		return nil, err
	}
	return &Source{Base: source.Base{Probe: p}}, nil
}

// adapt adapts the iterator to the running kernel. types may be nil.
func adapt(spec *ebpf.CollectionSpec, types *btf.Cache) error {
	kernel, err := probe.NewKernel(types)
	if err != nil {
		return err
	}
	readsSleepers, err := ReadsSleepers(kernel)
	if err != nil {
		return err
	}
	if !readsSleepers {
		spec.Programs[bpf.OffCPUProgOffcpuBegin].Flags &^= unix.BPF_F_SLEEPABLE
	}
	return nil
}

// ReadsSleepers reports whether the kernel can read the user stacks of threads that
// are already asleep when the measurement begins. This needs a sleepable iterator,
// and a helper that was added in the same release.
func ReadsSleepers(kernel probe.Kernel) (bool, error) {
	return kernel.HasHelper("bpf_copy_from_user_task")
}

// counted converts an entry of a count map.
func counted(k bpf.OffCPUCountKey, v bpf.OffCPUCountValue) (stacks.Key, stacks.Values) {
	detail := uint64(Slept)
	if k.Runnable != 0 {
		detail = Preempted
	}
	return stacks.Key{ID: k.Id, Kernel: k.Kernel, Waker: k.Waker, TID: k.Tid, CPU: uint32(k.Cpu), Detail: detail},
		stacks.Values{Waits: v.Times, Sleeping: v.Sleeping, Runnable: v.Waiting, OffCPU: v.Sleeping + v.Waiting}
}

// countedByPeer is counted with [Config.Peers]: the key has the peer in place of the waker.
func countedByPeer(k bpf.OffCPUCountKey, v bpf.OffCPUCountValue) (stacks.Key, stacks.Values) {
	peer := k.Waker
	k.Waker = 0
	key, values := counted(k, v)
	key.Detail |= peer << peerShift
	return key, values
}

// RunQueue returns the distribution of the times that threads waited for a CPU until they ran, with
// [Config.RunQueue].
func (s *Source) RunQueue() (histogram.Times, error) {
	return distribution.OfCPUs(s.Maps[bpf.OffCPUMapRunQueue], func(k bpf.OffCPUHistogram) distribution.Kernel { return distribution.Kernel(k) })
}

// Attach implements [source.Source].
func (s *Source) Attach(t target.Target) error {
	if err := s.FillTargets(t); err != nil {
		return err
	}
	return s.AttachTracing(bpf.OffCPUProgOffcpuFree, bpf.OffCPUProgOffcpuWaking, bpf.OffCPUProgOffcpuSwitch)
}

// Begin makes waits in progress count from the beginning on.
func (s *Source) Begin() error {
	if s.Programs[bpf.OffCPUProgOffcpuBegin] == nil { // nothing waits yet
		return nil
	}
	return s.iterate(bpf.OffCPUProgOffcpuBegin)
}

// Reduce implements [source.Reducible]. Waits in progress keep their weights until the next cut.
func (s *Source) Reduce(by uint64) error {
	s.reducing = by > 1
	s.reduced = s.reduced || s.reducing
	if err := s.Variables[bpf.OffCPUVarReduction].Set(uint32(by)); err != nil {
		return fmt.Errorf("reduce the number of measured waits: %w", err)
	}
	return nil
}

// End counts waits in progress until the end.
func (s *Source) End() error {
	if err := s.BeginCut(); err != nil {
		return err
	}
	return s.iterate(bpf.OffCPUProgOffcpuCut)
}

// BeginCut implements [source.Splitter].
func (s *Source) BeginCut() error {
	if err := s.Variables[bpf.OffCPUVarCutting].Set(true); err != nil {
		return fmt.Errorf("divide the waits in progress: %w", err)
	}
	// Wait for running programs that may not have seen the change.
	return rcu.Wait()
}

// Cut implements [source.Splitter]. It counts the waits in progress up to at, in CLOCK_MONOTONIC ns. The rest of each
// counts as a wait of its own. Limits on the length of waits then apply to the
// parts. From then on, waits in progress count once, including those that a reduction left out.
func (s *Source) Cut(at uint64) error {
	if err := s.Variables[bpf.OffCPUVarCut].Set(at); err != nil {
		return fmt.Errorf("mark the end of a window: %w", err)
	}
	err := s.iterate(bpf.OffCPUProgOffcpuCut)
	if s.reduced && s.Programs[bpf.OffCPUProgOffcpuBegin] != nil {
		err = errors.Join(err, s.iterate(bpf.OffCPUProgOffcpuBegin))
		s.reduced = s.reducing
	}
	return errors.Join(err, s.Variables[bpf.OffCPUVarCutting].Set(false))
}

// pendingBatch is the number of threads that one system call reads.
const pendingBatch = 1 << 12

// Pending implements [source.Waiting]. It returns the IDs of the user stacks at which waiting threads
// left their CPU. These waits will be counted, although their traces have already arrived.
func (s *Source) Pending() (ids []uint64, err error) {
	tids, threads := make([]uint32, pendingBatch), make([]bpf.OffCPUThread, pendingBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := s.Maps[bpf.OffCPUMapThreads].BatchLookup(&cursor, tids, threads, nil)
		end := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !end {
			return nil, fmt.Errorf("list the waiting threads: %w", err)
		}
		for _, t := range threads[:n] {
			if t.Since != 0 && (t.CutSince != t.Since || t.CutAt != uint64(bpf.OffCPUThreadTimeUNKNOWN_TIME)) {
				if t.FoundSince == t.Since {
					t.Id = t.Found
				}
				ids = append(ids, t.Id)
			}
		}
		if end {
			return ids, nil
		}
	}
}

// iterate runs a program for every existing thread.
func (s *Source) iterate(program string) (err error) {
	iter, err := link.AttachIter(link.IterOptions{Program: s.Programs[program]})
	if err != nil {
		return fmt.Errorf("iterate over waiting threads: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	r, err := iter.Open()
	if err != nil {
		return fmt.Errorf("iterate over waiting threads: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("iterate over waiting threads: %w", err)
	}
	return nil
}
