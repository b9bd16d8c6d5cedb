// Package offcpu measures what threads wait for: from when they leave their CPU
// until they are back, by the stack they left it in, by bpf/offcpu.bpf.c.
package offcpu

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"fulgur/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/rcu"
)

// DefaultPendingEntries is how many threads are remembered unless told
// otherwise.
const DefaultPendingEntries = 1 << 14

// The keys of this source have one of these as their detail.
const (
	// Slept: the thread gave its CPU away.
	Slept = 1
	// Preempted: another took its CPU, and it waited for one.
	Preempted = 2
)

// Threads says which sort of threads to measure.
type Threads uint32

// The sorts of threads.
const (
	AllThreads    = Threads(bpf.OffCPUThreadKindTHREADS_ALL)
	UserThreads   = Threads(bpf.OffCPUThreadKindTHREADS_USER)
	KernelThreads = Threads(bpf.OffCPUThreadKindTHREADS_KERNEL)
)

// Options configure the kernel side.
type Options struct {
	probe.Options
	Threads Threads
	// States are those that threads leave their CPU in.
	States States
	// Shortest and Longest bound the times off CPU that are counted. A Longest
	// of 0 is no bound.
	Shortest, Longest time.Duration
	// ByWaker counts apart who ended a wait.
	ByWaker bool
	// PendingEntries is how many threads are remembered; see the default.
	PendingEntries uint32
}

// Source is the loaded kernel side.
type Source struct {
	source.Base
	links probe.Links
}

// orcSymbols are what bpf/orc.h asks the addresses of: the kernel's unwind tables
// and the code that they are of.
var orcSymbols = []string{"__start_orc_unwind_ip", "__stop_orc_unwind_ip", "__start_orc_unwind", "_stext", "_etext"}

// Load loads the programs and their maps. Errors are the kernel's, as
// cilium/ebpf returns them.
func Load(o Options) (*Source, error) {
	spec, err := bpf.LoadOffCPU()
	if err != nil {
		return nil, err
	}
	// Without its unwind tables the kernel's own walker is asked for stacks.
	if err := probe.HideAddresses(spec, orcSymbols...); err != nil {
		return nil, err
	}
	switchHasState, err := adapt(spec, o.Types)
	if err != nil {
		return nil, err
	}
	spec.Maps[bpf.OffCPUMapThreads].MaxEntries = max(o.PendingEntries, 1)
	longest := uint64(math.MaxUint64)
	if o.Longest > 0 {
		longest = uint64(o.Longest)
	}
	p, err := probe.Load(spec, o.Options, map[string]any{
		bpf.OffCPUVarKind:     uint32(o.Threads),
		bpf.OffCPUVarStates:   uint32(o.States),
		bpf.OffCPUVarShortest: uint64(o.Shortest),
		bpf.OffCPUVarLongest:  longest,
		bpf.OffCPUVarByWaker:  o.ByWaker,

		bpf.OffCPUVarSwitchHasState: switchHasState,
	}, counted)
	if err != nil {
		return nil, err
	}
	return &Source{Base: source.Base{Probe: p}}, nil
}

// adapt makes the programs what the running kernel can load, and reports whether its
// sched_switch has the state of the thread. types may be nil.
func adapt(spec *ebpf.CollectionSpec, types *btf.Cache) (bool, error) {
	kernel, err := probe.NewKernel(types)
	if err != nil {
		return false, err
	}
	readsSleepers, err := ReadsSleepers(kernel)
	if err != nil {
		return false, err
	}
	if !readsSleepers {
		spec.Programs[bpf.OffCPUProgOffcpuBegin].Flags &^= unix.BPF_F_SLEEPABLE
	}
	return switchHasState(kernel)
}

// ReadsSleepers reports whether the user stacks of threads can be read that sleep
// already when the measurement begins: by an iterator that may sleep, too, and a helper
// that came together with these.
func ReadsSleepers(kernel probe.Kernel) (bool, error) {
	return kernel.HasHelper("bpf_copy_from_user_task")
}

// switchHasState reports whether the last argument of sched_switch is the state that
// the thread left its CPU in.
func switchHasState(kernel probe.Kernel) (bool, error) {
	arguments, _, err := kernel.Tracepoint("sched_switch")
	if err != nil || len(arguments) != 4 {
		return false, err
	}
	_, isNumber := arguments[3].(*btf.Int)
	return isNumber, nil
}

// counted says what an entry of a count map stands for.
func counted(k bpf.OffCPUCountKey, v bpf.OffCPUCountValue) (stacks.Key, stacks.Values) {
	detail := uint64(Slept)
	if k.Runnable != 0 {
		detail = Preempted
	}
	return stacks.Key{ID: k.Id, Kernel: k.Kernel, Waker: k.Waker, TID: k.Tid, CPU: uint32(k.Cpu), Detail: detail},
		stacks.Values{Waits: v.Times, Sleeping: v.Sleeping, Runnable: v.Waiting, OffCPU: v.Sleeping + v.Waiting}
}

// Attach attaches the programs, which do nothing yet.
func (s *Source) Attach(t target.Target) (err error) {
	if err := s.FillTargets(t); err != nil {
		return err
	}
	s.links, err = s.AttachTracing(bpf.OffCPUProgOffcpuFree, bpf.OffCPUProgOffcpuWaking, bpf.OffCPUProgOffcpuSwitch)
	return err
}

// Enable starts measuring. Threads that are off their CPU are from now on.
func (s *Source) Enable() error {
	if err := s.mark(bpf.OffCPUVarBegan, monotonic.Now()); err != nil {
		return err
	}
	return s.iterate(bpf.OffCPUProgOffcpuBegin)
}

// Disable stops measuring. Threads that are off their CPU were until now.
func (s *Source) Disable() error {
	err := s.mark(bpf.OffCPUVarEnded, monotonic.Now())
	if err == nil {
		err = s.BeginCut()
	}
	if err == nil {
		err = s.iterate(bpf.OffCPUProgOffcpuCut)
	}
	err = errors.Join(err, s.links.Close())
	s.links = nil
	return err
}

// BeginCut makes ready for a [Source.Cut], which can then be at once.
func (s *Source) BeginCut() error {
	if err := s.Variables[bpf.OffCPUVarCutting].Set(true); err != nil {
		return fmt.Errorf("divide the times of threads that wait: %w", err)
	}
	// Programs that run now may not have seen it: they count whole times.
	return rcu.Wait()
}

// Cut counts the times off the CPU that go on, up to a time of CLOCK_MONOTONIC in ns:
// what comes after that is a time of its own in each. Bounds of what is counted, where
// there are any, are then those of the parts.
func (s *Source) Cut(at uint64) error {
	if err := s.mark(bpf.OffCPUVarCut, at); err != nil {
		return err
	}
	return errors.Join(s.iterate(bpf.OffCPUProgOffcpuCut), s.Variables[bpf.OffCPUVarCutting].Set(false))
}

// unknownTime is UNKNOWN_TIME of bpf/offcpu.bpf.c.
const unknownTime = math.MaxUint64

// pendingBatch is how many threads one system call reads.
const pendingBatch = 1 << 12

// Pending returns the names of the stacks, the users' halves, that threads which are
// off their CPU left it in: they will be counted though their traces came before.
func (s *Source) Pending() (ids []uint64, err error) {
	tids, threads := make([]uint32, pendingBatch), make([]bpf.OffCPUThread, pendingBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := s.Maps[bpf.OffCPUMapThreads].BatchLookup(&cursor, tids, threads, nil)
		end := errors.Is(err, ebpf.ErrKeyNotExist)
		if err != nil && !end {
			return nil, fmt.Errorf("list the threads that wait: %w", err)
		}
		for _, t := range threads[:n] {
			if t.Since != 0 && (t.CutSince != t.Since || t.CutAt != unknownTime) {
				ids = append(ids, t.Id)
			}
		}
		if end {
			return ids, nil
		}
	}
}

// mark stores a time of CLOCK_MONOTONIC, in ns, in a variable.
func (s *Source) mark(variable string, at uint64) error {
	if err := s.Variables[variable].Set(at); err != nil {
		return fmt.Errorf("mark the time %s: %w", variable, err)
	}
	return nil
}

// iterate runs a program for every thread there is.
func (s *Source) iterate(program string) (err error) {
	iter, err := link.AttachIter(link.IterOptions{Program: s.Programs[program]})
	if err != nil {
		return fmt.Errorf("look at the threads that wait: %w", err)
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	r, err := iter.Open()
	if err != nil {
		return fmt.Errorf("look at the threads that wait: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("look at the threads that wait: %w", err)
	}
	return nil
}

// Close detaches the programs and unloads the kernel side.
func (s *Source) Close() error { return errors.Join(s.links.Close(), s.Probe.Close()) }
