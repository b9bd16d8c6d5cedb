package session

import (
	"slices"

	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/capture/unwinding"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/process"
)

// passTargetFiles passes the files that the target maps, or that a command is about to map, to the
// sources that follow files.
func (r *run) passTargetFiles() error {
	r.followsFiles = slices.ContainsFunc(r.sources, func(s source.Source) bool {
		_, follows := s.(source.FileFollower)
		return follows
	})
	if !r.followsFiles {
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
		if err := r.passFiles(files); err != nil {
			return err
		}
	}
	return nil
}

// passMappedFiles passes the files that the target has mapped since the last poll.
func (r *run) passMappedFiles() error {
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
		if err := r.passFiles(process.Files(r.tracker.Processes.Mappings(pid))); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) passFiles(files []*process.File) error {
	return source.Each(r.sources, func(s source.FileFollower) error { return s.Follow(files) })
}
