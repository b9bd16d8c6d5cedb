package boltprofile

import (
	"maps"
	"slices"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
)

// The members' pace.
const (
	// lookAgain is how soon the processes are looked at again when one was
	// born, or turned to other code, and lookAnyway how soon in any case: one
	// may have joined a cgroup.
	lookAgain  = 100 * time.Millisecond
	lookAnyway = time.Second
)

// initPID is the process that the machine goes down with: it is never stepped,
// and refused if it is asked for by its number.
const initPID = 1

// members keeps the stepper at those of the target's processes that run code
// whose profile is taken, and only at those: a build has many others.
type members struct {
	target target.Target
	// wanted reports whether a process has mapped code whose profile is taken, and
	// whether that is known by now.
	wanted    func(pid int) (wanted, known bool)
	add, drop func(pid int) error // what has the stepper step a process, or not
	excluded  []int               // never found, only named

	members map[int]standing
	stale   bool // something changed since the last look
	looked  time.Time
}

// standing is what is known of a process of the target.
type standing uint8

const (
	isNew     standing = iota // or it may have changed
	isIdle                    // it has mapped nothing that is wanted
	isStepped                 // by the stepper
	isLeaving                 // stepped, but it has turned to another program
)

// handleRecord takes note of what a record says of processes.
func (c *members) handleRecord(r perfevent.Record) {
	switch r := r.(type) {
	case perfevent.Fork:
		c.stale = c.stale || r.PID != r.PPID
	case perfevent.Mmap2:
		c.turn(r.PID, isIdle, isNew)
	case perfevent.Comm:
		if r.Exec {
			c.turn(r.PID, isIdle, isNew)
			c.turn(r.PID, isStepped, isLeaving)
		}
	case perfevent.Exit:
		if r.PID == r.TID {
			delete(c.members, r.PID)
		}
	case perfevent.Lost:
		for pid := range c.members {
			c.turn(pid, isIdle, isNew)
		}
	}
}

// turn has the process stand elsewhere, if it stands at from.
func (c *members) turn(pid int, from, to standing) {
	if s, known := c.members[pid]; known && s == from {
		c.members[pid] = to
		c.stale = true
	}
}

// follow looks at the processes when it is time.
func (c *members) follow() error {
	since := time.Since(c.looked)
	if c.stale && since >= lookAgain || since >= lookAnyway {
		return c.look()
	}
	return nil
}

// look finds the processes of the target and has those stepped that are to be.
// Looking at one may bring records of others, which are for the next look.
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

// place brings the stepper up to date with a process.
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
	// Before it is looked at, so that what it maps meanwhile shows.
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

// find returns the processes of the target that there are.
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
			// The children of one that has ended descend from none of the
			// named.
			pids, err = target.Descendants(slices.Concat(t.PIDs, c.pids()))
		}
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool { return slices.Contains(c.excluded, pid) })
	return append(pids, c.target.PIDs...), err
}

// pids returns the processes of the target, as far as they were seen.
func (c *members) pids() []int { return slices.Collect(maps.Keys(c.members)) }
