package session

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"fulgur/internal/debugfile"
	"fulgur/internal/perfevent"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/source/probe"
	"fulgur/internal/target"
	"fulgur/internal/unwind/unwindmap"
	"fulgur/internal/usage"
)

// The values of Options.Unwind.
const (
	unwindAuto  = "auto"
	unwindDwarf = "dwarf"
	unwindFP    = "fp"
)

// How long sampling waits for unwind tables at most: those of all that runs, or of
// what the user named. Those that take longer are made while it samples.
const (
	waitForMany = 2 * time.Second
	waitForFew  = 10 * time.Second
)

// alertAtLaunch is how long a command takes at most to map its libraries. What is
// sampled in one is not unwound before that is known.
const alertAtLaunch = 100 * time.Millisecond

// unwinder keeps the kernel side's unwind tables up to date. It belongs to no
// source: any probe that walks stacks can be loaded with its tables. The zero
// value is that of frame pointers, and does nothing.
type unwinder struct {
	loader *unwindmap.Loader
	by     probe.Unwind
	// dirty are the processes that mapped code since they were last laid out,
	// exited those whose first thread ended.
	dirty, exited map[int]bool
	// wanted are the processes that the kernel side asks for, and their images.
	wanted map[int]uint64
	pace   pace
}

// load loads the maps for tables, unless frame pointers are all that is asked for.
// finder finds debug files, types has the kernel's types.
func (u *unwinder) load(o *Options, finder *debugfile.Finder, types *btf.Cache) (err error) {
	mode, by := unwindmap.Auto, probe.ByBoth
	switch o.Unwind {
	case "", unwindAuto:
	case unwindDwarf:
		mode, by = unwindmap.Tables, probe.ByTables
	case unwindFP:
		return nil
	default:
		return usage.Errorf("--unwind %s: neither auto nor fp nor dwarf", o.Unwind)
	}
	if o.KernelOnly {
		return nil
	}
	u.by = by
	u.dirty, u.exited, u.wanted, u.pace = map[int]bool{}, map[int]bool{}, map[int]uint64{}, pace{}
	u.loader, err = unwindmap.New(unwindmap.Options{
		Finder: finder.Local(),
		Types:  types,
		Mode:   mode,
		Memory: o.UnwindMemory,
		Few:    o.Target.Scope != target.System && o.Target.Scope != target.Cgroup,
	})
	return err
}

// replacements are the maps that a probe is to be loaded with.
func (u *unwinder) replacements() map[string]*ebpf.Map {
	if u.loader == nil {
		return nil
	}
	return u.loader.Replacements()
}

// heed takes note of what a process did. It is called before the table of
// processes knows.
func (u *unwinder) heed(r perfevent.Record) {
	if u.loader == nil {
		return
	}
	switch r := r.(type) {
	case perfevent.Fork:
		if r.PID != r.PPID {
			u.loader.Forked(r.PPID, r.PID, r.Time)
			if u.dirty[r.PPID] {
				u.dirty[r.PID] = true
			}
		}
	case perfevent.Comm:
		if r.Exec {
			u.loader.Ended(r.PID)
			u.forget(r.PID)
		}
	case perfevent.Exit:
		if r.PID == r.TID {
			u.exited[r.PID] = true
		}
	case perfevent.Lost:
		u.loader.Reset()
	}
}

// mapped notes that a process mapped code.
func (u *unwinder) mapped(pid int) {
	if u.loader != nil && u.loader.Known(pid) {
		u.dirty[pid] = true
	}
}

// expect has the tables made of processes that run, all if pids is nil: first of
// those that keep CPUs busy. Those that have not begun yet will need libraries,
// too.
func (u *unwinder) expect(processes *process.Table, pids []int, beginning bool) error {
	wanted := map[int]bool{}
	for _, pid := range pids {
		wanted[pid] = true
	}
	images, load := map[int]uint64{}, map[int]float64{}
	if err := u.loader.Tasks(func(pid int, image uint64) {
		if (pids == nil || wanted[pid]) && !u.loader.Known(pid) {
			images[pid], load[pid] = image, target.Load(pid)
		}
	}); err != nil {
		return err
	}
	busiest := slices.SortedFunc(maps.Keys(images), func(a, b int) int { return cmp.Compare(load[b], load[a]) })
	for _, pid := range busiest {
		if maps := processes.Mappings(pid); len(maps) > 0 {
			u.loader.Expect(pid, images[pid], maps)
		}
		if beginning {
			u.loader.Prepare(libraries(processes, pid))
		}
	}
	return nil
}

// wait waits for the tables that are being made.
func (u *unwinder) wait(s target.Scope) {
	if u.loader == nil {
		return
	}
	limit := waitForFew
	if s == target.System || s == target.Cgroup {
		limit = waitForMany
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	u.loader.Wait(ctx)
}

// still calls f while the tables stay as they are.
func (u *unwinder) still(f func() error) error {
	if u.loader == nil {
		return f()
	}
	return u.loader.Still(f)
}

// fds are the descriptors that become readable when the kernel side lacks
// something.
func (u *unwinder) fds() []int {
	if u.loader == nil {
		return nil
	}
	return []int{u.loader.Requests().FD()}
}

// position returns up to where there are requests now.
func (u *unwinder) position() uint64 {
	if u.loader == nil {
		return 0
	}
	return u.loader.Requests().Position()
}

// forget forgets what is to be done about a process.
func (u *unwinder) forget(pid int) {
	delete(u.dirty, pid)
	delete(u.wanted, pid)
	delete(u.pace, pid)
}

// manyMappings is the number from which on a process's mappings are not told to
// the kernel side as often as they change, or are asked for, but every
// restPerMapping for each.
const (
	manyMappings   = 512
	restPerMapping = 20 * time.Microsecond
)

// pace is when a process with many mappings may be laid out again.
type pace map[int]time.Time

// rests reports whether it is too early for that.
func (p pace) rests(pid int, now time.Time) bool { return now.Before(p[pid]) }

// took notes that a process of n mappings was laid out.
func (p pace) took(pid, n int, now time.Time) {
	if n > manyMappings {
		p[pid] = now.Add(time.Duration(n) * restPerMapping)
	} else {
		delete(p, pid)
	}
}

// update answers the requests before the given position, and tells the kernel side
// what changed. The table of processes knows all that happened until now.
func (u *unwinder) update(processes *process.Table, requests, now uint64) error {
	if u.loader == nil {
		return nil
	}
	if err := u.loader.Requests().ReadTo(requests, func(record []byte) error {
		want, err := unwindmap.ParseRequest(record)
		switch {
		case err != nil:
			return err
		case want.PID == 0:
			u.loader.Reload(want.Page)
		default:
			u.wanted[want.PID] = want.Image
		}
		return nil
	}); err != nil {
		return err
	}
	u.layOut(processes)
	for pid := range u.exited {
		if u.loader.Gone(pid) {
			delete(u.exited, pid)
			u.forget(pid)
		}
	}
	u.loader.Settled(now)
	return nil
}

// layOut tells the kernel side of the processes that it asked for, and of those that
// changed.
func (u *unwinder) layOut(processes *process.Table) {
	for pid, image := range u.wanted {
		if u.pace.rests(pid, time.Now()) {
			continue
		}
		delete(u.wanted, pid)
		delete(u.dirty, pid)
		maps := processes.Mappings(pid)
		u.loader.Request(pid, image, maps)
		u.pace.took(pid, len(maps), time.Now())
	}
	for pid := range u.dirty {
		if u.pace.rests(pid, time.Now()) {
			continue
		}
		delete(u.dirty, pid)
		maps := processes.Mappings(pid)
		u.loader.Remap(pid, maps)
		u.pace.took(pid, len(maps), time.Now())
	}
}

// losses adds what was left out.
func (u *unwinder) losses(l *profile.Losses) {
	if u.loader == nil {
		return
	}
	stats := u.loader.Stats()
	l.UnwindFiles = uint64(stats.Files)
	l.UnwindMemory = uint64(stats.NoRoom)
	l.UnwindProcesses = stats.Processes + stats.Cut
}

// problem returns the first reason why something was left out, nil if nothing was.
func (u *unwinder) problem() error {
	if u.loader == nil {
		return nil
	}
	return u.loader.Stats().Failure
}

// memory returns the most memory of the kernel side's tables, in bytes.
func (u *unwinder) memory() uint64 {
	if u.loader == nil {
		return 0
	}
	return u.loader.MapMemory()
}

func (u *unwinder) close() error {
	if u.loader == nil {
		return nil
	}
	return u.loader.Close()
}

// measured returns the processes that t is now, nil for all of the system. members
// returns those of a set of targets, nil if there is none yet.
func measured(t target.Target, members func() ([]int, error)) ([]int, error) {
	switch t.Scope {
	case target.System:
		return nil, nil
	case target.Cgroup:
		return target.CgroupProcesses(t.CgroupPath)
	case target.Threads:
		return target.ProcessesOf(t.TIDs), nil
	}
	if members == nil {
		return t.PIDs, nil
	}
	pids, err := members()
	if err != nil {
		return nil, fmt.Errorf("find what is measured: %w", err)
	}
	return pids, nil
}
