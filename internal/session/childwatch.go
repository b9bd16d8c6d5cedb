package session

import (
	"fmt"
	"slices"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/usage"
)

// childWatch notices children of processes that are measured without them: a
// shell, for example, waits while its child runs.
type childWatch struct {
	of   []int // the processes
	seen bool
}

// newChildWatch returns a childWatch for a target, nil if children are
// measured, too.
func newChildWatch(t target.Target) *childWatch {
	if t.Scope != target.Processes || t.Children {
		return nil
	}
	return &childWatch{of: t.PIDs}
}

// handleRecord notes forks in a sideband record.
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

// hint returns a hint for the case that the processes themselves have no
// samples, "" if they had no children.
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
	return fmt.Sprintf("; it has child processes: add %s to include them", usage.Children)
}
