package session

import (
	"slices"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
)

// childWatch tells whether processes that are measured without their children have
// any: a shell waits while what it started runs.
type childWatch struct {
	of   []int // the processes
	seen bool
}

// newChildWatch returns that of a target, nil if there is none that it leaves out.
func newChildWatch(t target.Target) *childWatch {
	if t.Scope != target.Processes || t.Children {
		return nil
	}
	return &childWatch{of: t.PIDs}
}

// handleRecord takes note of a record.
func (o *childWatch) handleRecord(r perfevent.Record) {
	if o == nil || o.seen {
		return
	}
	switch r := r.(type) {
	case perfevent.Fork:
		o.seen = r.PID != r.PPID && slices.Contains(o.of, r.PPID)
	case perfevent.Exit:
		o.seen = r.PID != r.PPID && slices.Contains(o.of, r.PPID)
	}
}

// hint returns what is to be said if nothing happened in the processes themselves,
// nothing if they had no children.
func (o *childWatch) hint() string {
	if o == nil {
		return ""
	}
	if found, err := target.Descendants(o.of); err == nil && len(found) > 0 {
		o.seen = true
	}
	if !o.seen {
		return ""
	}
	return "; it has child processes: add --children to include them"
}
