package branches

import (
	"maps"
	"slices"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
)

// Intervals of looking at the members.
const (
	// lookAgain is the interval after a process was started, or executed another
	// program; lookAnyway is the interval without such events, because a process
	// may have joined a cgroup.
	lookAgain  = 100 * time.Millisecond
	lookAnyway = time.Second
)

// members makes the stepper step only the target's processes that run profiled code: a
// build has many others.
type members struct {
	target target.Target
	// wanted reports whether a process has mapped profiled code, and whether
	// that is already known.
	wanted    func(pid int) (wanted, known bool)
	add, drop func(pid int) error // start and stop stepping a process
	excluded  []int               // ignored unless named by the user

	members map[int]memberState
	stale   bool // something has changed since the last look
	looked  time.Time
}

// memberState is the state of a process of the target.
type memberState uint8

const (
	isNew     memberState = iota // or changed
	isIdle                       // has not mapped profiled code
	isStepped                    // stepped by the stepper
	isLeaving                    // stepped, but executed another program
)

// handleRecord handles a sideband record.
func (c *members) handleRecord(r perfevent.Record) {
	switch r := r.(type) {
	case perfevent.Fork:
		c.stale = c.stale || r.PID != r.PPID
	case perfevent.Mmap2:
		c.change(r.PID, isIdle, isNew)
	case perfevent.Comm:
		if r.Exec {
			c.change(r.PID, isIdle, isNew)
			c.change(r.PID, isStepped, isLeaving)
		}
	case perfevent.Exit:
		if r.PID == r.TID {
			delete(c.members, r.PID)
		}
	case perfevent.Lost:
		for pid := range c.members {
			c.change(pid, isIdle, isNew)
		}
	}
}

// change replaces the state of a process that is in state from.
func (c *members) change(pid int, from, to memberState) {
	if s, known := c.members[pid]; known && s == from {
		c.members[pid] = to
		c.stale = true
	}
}

// follow looks at the processes if it is time.
func (c *members) follow() error {
	since := time.Since(c.looked)
	if c.stale && since >= lookAgain || since >= lookAnyway {
		return c.look()
	}
	return nil
}

// look finds the processes of the target and starts stepping where needed. Looking
// at one process may bring records of others, which the next look handles.
func (c *members) look() error {
	c.stale, c.looked = false, time.Now()
	pids, err := c.find()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if _, known := c.members[pid]; !known {
			c.members[pid] = isNew
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(c.members)) {
		if err := c.place(pid); err != nil {
			return err
		}
	}
	return nil
}

// place updates the stepper for a process.
func (c *members) place(pid int) error {
	was, found := c.members[pid]
	if !found || was == isIdle || was == isStepped {
		return nil
	}
	if was == isLeaving {
		if err := c.drop(pid); err != nil {
			return err
		}
	}
	// Set the state first, so that new mappings during the look change it.
	c.members[pid] = isIdle
	wanted, known := c.wanted(pid)
	if !known {
		c.members[pid], c.stale = isNew, true
		return nil
	}
	if !wanted || c.members[pid] != isIdle {
		return nil
	}
	c.members[pid] = isStepped
	return c.add(pid)
}

// find returns the current processes of the target.
func (c *members) find() ([]int, error) {
	var pids []int
	var err error
	switch t := c.target; t.Scope {
	case target.System:
		pids, err = procfs.Processes()
	case target.Cgroup:
		pids, err = procfs.CgroupProcesses(t.CgroupPath)
	default:
		if t.Children {
			// Children of an exited process are no longer descendants of
			// the named processes.
			pids, err = target.Descendants(slices.Concat(t.PIDs, c.pids()))
		}
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool { return slices.Contains(c.excluded, pid) })
	return append(pids, c.target.PIDs...), err
}

// pids returns the known processes of the target.
func (c *members) pids() []int { return slices.Collect(maps.Keys(c.members)) }
