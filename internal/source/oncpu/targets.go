package oncpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"fulgur/internal/target"
)

// fillTarget puts the processes or threads of t into the kernel side's target
// set. The set follows their ends and, where children belong to the target,
// their forks; those that forked before are looked for.
func (s *Source) fillTarget(t target.Target) error {
	ids := t.PIDs
	if t.Scope == target.Threads {
		ids = t.TIDs
	}
	if len(ids) == 0 {
		return nil
	}
	programs := []*ebpf.Program{s.objects.TargetFree}
	if t.Children {
		programs = append(programs, s.objects.TargetFork)
	}
	for _, p := range programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("follow the target's forks and ends: %w", err)
		}
		s.links = append(s.links, l)
	}
	if err := s.addTargets(ids); err != nil || !t.Children {
		return err
	}
	for known := slices.Clone(ids); ; {
		// Until none is new: one may have forked before it was in the set.
		descendants, err := target.Descendants(ids)
		if err != nil {
			return err
		}
		fresh := slices.DeleteFunc(descendants, func(pid int) bool { return slices.Contains(known, pid) })
		if len(fresh) == 0 {
			return nil
		}
		if err := s.addTargets(fresh); err != nil {
			return err
		}
		known = append(known, fresh...)
	}
}

// addTargets puts ids into the target set, and counts those that it has no
// room for.
func (s *Source) addTargets(ids []int) error {
	for _, id := range ids {
		// 0 stands for whoever has the id: /proc tells start times in ticks.
		err := s.objects.TargetIds.Put(uint32(id), uint64(0))
		if errors.Is(err, unix.E2BIG) {
			s.untracked++
		} else if err != nil {
			return fmt.Errorf("target %d: %w", id, err)
		}
	}
	return nil
}

// Targets returns the processes or threads that are in the target set now.
func (s *Source) Targets() ([]int, error) {
	for {
		var ids []int
		var id uint32
		var start uint64
		all := s.objects.TargetIds.Iterate()
		for all.Next(&id, &start) {
			ids = append(ids, int(id))
		}
		if err := all.Err(); err == nil {
			return ids, nil
		} else if !errors.Is(err, ebpf.ErrIterationAborted) { // by a change meanwhile
			return nil, fmt.Errorf("read the target set: %w", err)
		}
	}
}
