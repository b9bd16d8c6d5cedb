package session

import (
	"slices"
	"strings"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/process/otelcontext"
	"fulgur/internal/profile"
)

// published finds the attributes that processes publish. A nil published finds nothing.
type published struct{ tracker *otelcontext.Tracker }

func newPublished() *published { return &published{otelcontext.NewTracker()} }

// of returns the attributes of the processes among pids that still run.
func (p *published) of(pids []int) map[int][]profile.Attribute {
	if p == nil {
		return nil
	}
	all := map[int][]profile.Attribute{}
	for pid, attributes := range p.tracker.Attributes(pids) {
		for _, a := range attributes {
			all[pid] = append(all[pid], profile.Attribute(a))
		}
	}
	return all
}

// processesOf returns the processes that have samples, sorted.
func processesOf(p *profile.Profile) (pids []int) {
	for _, s := range p.Samples {
		if pid := p.Tasks[s.Task].PID; pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// executables returns the paths of the programs of the processes among pids that still run. Programs in
// memory, such as the copy of itself that runc executes, have no path.
func executables(pids []int) map[int]string {
	all := map[int]string{}
	for _, pid := range pids {
		if path, err := procfs.Executable(pid); err == nil && !strings.HasPrefix(path, "/memfd:") {
			all[pid] = path
		}
	}
	return all
}
