package target

import (
	"fmt"

	"fulgur/internal/containers"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
)

// Resolve finds the cgroup of a target that is given by the name of a container, unit or
// pod. If it has no cgroup of version 2, its processes become the target, with their
// descendants, because the kernel side knows no other cgroups. Resolve does nothing for
// other targets, and if it was called before. If the name does not exist, the error wraps
// [containers.ErrNotFound].
func (t *Target) Resolve() error {
	if t.Named == profile.GroupNone || t.CgroupPath != "" || len(t.PIDs) > 0 {
		return nil
	}
	g, err := containers.Find(t.Named, t.Name)
	if err != nil {
		return err
	}
	if g.Unified {
		t.CgroupPath = g.Path
		return nil
	}
	pids, err := procfs.CgroupProcesses(g.Path)
	if err == nil && len(pids) == 0 {
		err = fmt.Errorf("%s %q has no processes: %w", t.Named, t.Name, ErrNotFound)
	}
	if err != nil {
		return err
	}
	t.Scope, t.PIDs, t.Children = Processes, pids, true
	return nil
}
