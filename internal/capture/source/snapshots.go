package source

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/stacks"
)

// Rewalker is a source that sends samples whose walk needs further unwind tables as a
// [stacks.Snapshot]. Tables for other sources must be made before their first sample.
type Rewalker interface {
	// CanRewalk reports whether Rewalk does not have to wait until it is loaded. The first
	// call begins to load it.
	CanRewalk() bool
	// Rewalk unwinds the stack of a snapshot by a layout of the process, or by frame pointers if
	// layout is 0, and counts the sample. If the layout lacks a table, it counts nothing and returns
	// the address that needs it.
	Rewalk(s stacks.Snapshot, layout uint64) (lacks uint64, err error)
}

// Snapshots is [Base] for a [Rewalker].
type Snapshots struct {
	Base
	// spec has the program that walks the stacks of snapshots, until it is loaded. later
	// is set from the first snapshot on.
	spec  *ebpf.CollectionSpec
	later *probe.Later
	back  *bpf.Snapshot // the last one handed back, nil before the first
}

// LoadWithSnapshots is [probe.Load] without [bpf.ProgSnapshotAgain], which walks the
// stacks of snapshots. It is loaded when the first snapshot arrives, because the kernel
// takes as long to verify it as all the rest. Without snapshots it is never loaded.
func LoadWithSnapshots[K, V any](spec *ebpf.CollectionSpec, o probe.Options, variables map[string]any, convert func(K, V) (stacks.Key, stacks.Values)) (Snapshots, error) {
	again := spec.Programs[bpf.ProgSnapshotAgain]
	delete(spec.Programs, bpf.ProgSnapshotAgain)
	p, err := probe.Load(spec, o, variables, convert)
	if err != nil {
		return Snapshots{}, err
	}
	s := Snapshots{Base: Base{p}}
	if o.Snapshots {
		s.spec = spec
		s.spec.Programs = map[string]*ebpf.ProgramSpec{bpf.ProgSnapshotAgain: again}
	}
	return s, nil
}

// CanRewalk implements [Rewalker].
func (s *Snapshots) CanRewalk() bool {
	if s.spec == nil {
		return true
	}
	if s.later == nil {
		s.later = s.LoadLater(s.spec)
	}
	return s.later.Done()
}

// Rewalk implements [Rewalker].
func (s *Snapshots) Rewalk(sn stacks.Snapshot, layout uint64) (lacks uint64, err error) {
	if err := s.finishLoading(); err != nil {
		return 0, err
	}
	if s.back == nil {
		s.back = new(bpf.Snapshot)
	}
	sn.Fill(s.back, layout)
	if err := s.Maps[bpf.OnCPUMapSnapshotBack].Put(uint32(0), unsafe.Pointer(s.back)); err != nil {
		return 0, fmt.Errorf("hand a snapshot back to the kernel: %w", err)
	}
	if _, err := s.Programs[bpf.ProgSnapshotAgain].Run(&ebpf.RunOptions{}); err != nil {
		return 0, fmt.Errorf("walk the stack of a snapshot: %w", err)
	}
	if err := s.Variables[bpf.OnCPUVarSnapshotLacks].Get(&lacks); err != nil {
		return 0, fmt.Errorf("read the end of a snapshot's walk: %w", err)
	}
	return lacks, nil
}

// finishLoading waits for the program that walks the stacks of snapshots.
func (s *Snapshots) finishLoading() error {
	if s.CanRewalk(); s.spec == nil {
		return nil
	}
	s.spec = nil
	return s.Add(s.later)
}

// Close unloads the kernel side.
func (s *Snapshots) Close() error {
	var err error
	if s.later != nil {
		err = s.finishLoading()
	}
	return errors.Join(err, s.Probe.Close())
}
