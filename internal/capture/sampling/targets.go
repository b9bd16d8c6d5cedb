package sampling

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/target"
)

// TargetMode returns the mode of bpf/target.h for s.
func TargetMode(s target.Scope) uint32 {
	switch s {
	case target.Cgroup:
		return uint32(bpf.TargetCgroup)
	case target.Processes, target.Command:
		return uint32(bpf.TargetProcesses)
	case target.Threads:
		return uint32(bpf.TargetThreads)
	}
	return uint32(bpf.TargetAll)
}

// TargetSet is the kernel side's set of targets; see bpf/target.h.
type TargetSet struct {
	ids       *ebpf.Map
	links     []link.Link
	untracked uint64 // targets for which the set had no room
}

// FillTargets adds the processes or threads of t to the set ids. The programs fork
// and free track their exits and, if children belong to the target, their forks.
// FillTargets also searches for existing children. If the set has one member and cannot get others,
// FillTargets stores its ID in the variable only.
func FillTargets(t target.Target, ids *ebpf.Map, only *ebpf.Variable, fork, free *ebpf.Program) (*TargetSet, error) {
	s := &TargetSet{ids: ids}
	if err := s.fill(t, only, fork, free); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *TargetSet) fill(t target.Target, only *ebpf.Variable, fork, free *ebpf.Program) error {
	ids := t.PIDs
	if t.Scope == target.Threads {
		ids = t.TIDs
	}
	if len(ids) == 0 {
		return nil
	}
	programs := []*ebpf.Program{free}
	if t.Children {
		programs = append(programs, fork)
	}
	for _, p := range programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("track the target's forks and exits: %w", err)
		}
		s.links = append(s.links, l)
	}
	if err := s.add(ids); err != nil {
		return err
	}
	if !t.Children {
		if len(ids) == 1 {
			return only.Set(uint32(ids[0]))
		}
		return nil
	}
	for known := slices.Clone(ids); ; {
		// Repeat until no child is new: one may have forked before it was in
		// the set.
		descendants, err := target.Descendants(ids)
		if err != nil {
			return err
		}
		fresh := slices.DeleteFunc(descendants, func(pid int) bool { return slices.Contains(known, pid) })
		if len(fresh) == 0 {
			return nil
		}
		if err := s.add(fresh); err != nil {
			return err
		}
		known = append(known, fresh...)
	}
}

// add adds ids to the target set, and counts those for which it has no room.
func (s *TargetSet) add(ids []int) error {
	for _, id := range ids {
		// 0 matches any start time: /proc has start times in ticks only.
		err := s.ids.Put(uint32(id), uint64(0))
		if errors.Is(err, unix.E2BIG) {
			s.untracked++
		} else if err != nil {
			return fmt.Errorf("target %d: %w", id, err)
		}
	}
	return nil
}

// Members returns the processes or threads that are currently in the set.
func (s *TargetSet) Members() ([]int, error) {
	for {
		var ids []int
		var id uint32
		var start uint64
		all := s.ids.Iterate()
		for all.Next(&id, &start) {
			ids = append(ids, int(id))
		}
		if err := all.Err(); err == nil {
			return ids, nil
		} else if !errors.Is(err, ebpf.ErrIterationAborted) { // the set changed meanwhile
			return nil, fmt.Errorf("read the target set: %w", err)
		}
	}
}

// Untracked returns the number of targets for which the set had no room, without
// those that the kernel side counted.
func (s *TargetSet) Untracked() uint64 { return s.untracked }

// Close stops tracking forks and exits. s may be nil.
func (s *TargetSet) Close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
