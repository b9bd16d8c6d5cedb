package session

import (
	"slices"

	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/unwinding"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/process"
)

// introduce passes the files that the target maps, or that a command is about to map, to the
// sources.
func (r *run) introduce() error {
	r.followers = slices.DeleteFunc(slices.Clone(r.sources), func(s source.Source) bool { return !s.FollowsFiles() })
	r.loop.Enough = func() bool { return r.whyStopped() != "" }
	if len(r.followers) == 0 {
		return nil
	}
	pids, err := target.Measured(r.options.Target, r.Targets)
	if r.options.Target.Scope == target.System {
		pids, err = procfs.Processes()
	}
	if err != nil {
		return err
	}
	for _, pid := range pids {
		files := process.Files(r.tracker.Processes.Mappings(pid))
		if r.options.Target.Scope == target.Command {
			files = append(files, unwinding.Libraries(r.tracker.Processes, pid)...)
		}
		if err := r.follow(files); err != nil {
			return err
		}
	}
	return nil
}

// followMapped passes the files that the target has mapped since the last poll to the sources.
func (r *run) followMapped() error {
	if len(r.mapped) == 0 {
		return nil
	}
	defer clear(r.mapped)
	pids, err := target.Measured(r.options.Target, r.Targets)
	if err != nil {
		return err
	}
	for pid := range r.mapped {
		if r.options.Target.Scope != target.System && !slices.Contains(pids, pid) {
			continue
		}
		if err := r.follow(process.Files(r.tracker.Processes.Mappings(pid))); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) follow(files []*process.File) error {
	for _, f := range r.followers {
		if err := f.Follow(files); err != nil {
			return err
		}
	}
	return nil
}
