package session

import (
	"slices"

	"fulgur/internal/process/otelcontext"
	"fulgur/internal/profile"
)

// published finds the attributes that the processes of a profile publish. A nil published
// finds nothing.
type published struct{ tracker *otelcontext.Tracker }

func newPublished() *published { return &published{otelcontext.NewTracker()} }

// of returns the attributes of the processes that have samples and still run.
func (p *published) of(from *profile.Profile) map[int][]profile.Attribute {
	if p == nil {
		return nil
	}
	var pids []int
	for _, s := range from.Samples {
		if pid := from.Tasks[s.Task].PID; pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	all := map[int][]profile.Attribute{}
	for pid, attributes := range p.tracker.Attributes(slices.Compact(pids)) {
		for _, a := range attributes {
			all[pid] = append(all[pid], profile.Attribute(a))
		}
	}
	return all
}
