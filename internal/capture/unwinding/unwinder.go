// Package unwinding keeps the unwind tables of the kernel side up to date while it
// samples: with what processes map, execute and leave, and for those that are new or
// end soon.
package unwinding

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"fulgur/bpf"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/unwind/unwindmap"
)

// Options say how user stacks are walked.
type Options struct {
	// Mode is "auto" or empty for the unwind tables of files, and frame pointers
	// where there are none; "dwarf" for tables alone; "fp" for frame pointers alone.
	Mode string
	// Memory bounds the tables in kernel memory, in bytes; 0 takes the default.
	Memory int64
	// Scope is what is measured. KernelOnly says that no user stack is walked.
	Scope      target.Scope
	KernelOnly bool
}

// The values of Mode.
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

// AlertAtLaunch is how long a command takes at most to map its libraries. What is
// sampled in one is not unwound before that is known.
const AlertAtLaunch = 100 * time.Millisecond

// Unwinder keeps the kernel side's unwind tables up to date. It belongs to no
// source: any probe that walks stacks can be loaded with its tables. The zero
// value is that of frame pointers, and does nothing.
type Unwinder struct {
	loader *unwindmap.Loader
	// By says what the kernel side is to walk by.
	By      bpf.UnwindMode
	backlog backlog
	// exited are the processes whose first thread ended.
	exited map[int]bool
	doubt  doubt
}

// Load loads the maps for tables, unless frame pointers are all that is asked for.
// finder finds debug files, types has the kernel's types.
func (u *Unwinder) Load(o Options, finder *debugfile.Finder, types *btf.Cache) (err error) {
	mode, by := unwindmap.Auto, bpf.UnwindByBoth
	switch o.Mode {
	case "", unwindAuto:
	case unwindDwarf:
		mode, by = unwindmap.Tables, bpf.UnwindByTables
	case unwindFP:
		return nil
	default:
		return usage.Errorf("unwinding method %q: choose auto, dwarf or fp", o.Mode)
	}
	if o.KernelOnly {
		return nil
	}
	u.By = by
	u.backlog, u.exited, u.doubt = newBacklog(), map[int]bool{}, doubt{}
	u.loader, err = unwindmap.New(unwindmap.Options{
		Finder: finder.Local(),
		Types:  types,
		Mode:   mode,
		Memory: o.Memory,
		Few:    o.Scope != target.System && o.Scope != target.Cgroup,
	})
	return err
}

// HasTables reports whether there are tables to be kept up to date.
func (u *Unwinder) HasTables() bool { return u.loader != nil }

// Snapshots returns what takes samples again when their tables are there.
func (u *Unwinder) Snapshots() Snapshots { return Snapshots{loader: u.loader} }

// Replacements are the maps that a probe is to be loaded with.
func (u *Unwinder) Replacements() map[string]*ebpf.Map {
	if u.loader == nil {
		return nil
	}
	return u.loader.Replacements()
}

// HandleRecord takes note of what a process did. It is called before the table of
// processes knows.
func (u *Unwinder) HandleRecord(r perfevent.Record) {
	if u.loader == nil {
		return
	}
	switch r := r.(type) {
	case perfevent.Fork:
		if r.PID != r.PPID {
			u.loader.Forked(r.PPID, r.PID, r.Time)
			u.backlog.forked(r.PPID, r.PID)
		}
	case perfevent.Comm:
		if r.Exec {
			u.loader.Ended(r.PID)
			u.backlog.forget(r.PID)
		}
	case perfevent.Exit:
		if r.PID == r.TID {
			u.exited[r.PID] = true
		}
	case perfevent.Lost:
		u.doubt.wanted = true
	}
}

// Mapped notes that a process mapped code.
func (u *Unwinder) Mapped(pid int) {
	if u.loader != nil && u.loader.Known(pid) {
		u.backlog.mapped(pid)
	}
}

// Expect has the tables made of processes that run, all if pids is nil: first of
// those that keep CPUs busy. Those that have not begun yet will need libraries,
// too.
func (u *Unwinder) Expect(processes *process.Table, pids []int, beginning bool) error {
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

// Wait waits for the tables that are being made.
func (u *Unwinder) Wait(s target.Scope) {
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

// WithFrozenTables calls f while the tables stay as they are.
func (u *Unwinder) WithFrozenTables(f func() error) error {
	if u.loader == nil {
		return f()
	}
	return u.loader.WithFrozenTables(f)
}

// FDs are the descriptors that become readable when the kernel side lacks
// something.
func (u *Unwinder) FDs() []int {
	if u.loader == nil {
		return nil
	}
	return []int{u.loader.Requests().FD()}
}

// Position returns up to where there are requests now.
func (u *Unwinder) Position() uint64 {
	if u.loader == nil {
		return 0
	}
	return u.loader.Requests().Position()
}

// restOfDoubt is how often all processes are laid out anew at most. Where one process
// floods the rings, records are lost all the time.
const restOfDoubt = time.Second

// doubt is that records were lost, which makes the layouts of all processes doubtful:
// they may have other mappings, and children that nobody told of. Until they are laid
// out anew, theirs hold, and none is used again.
type doubt struct {
	wanted bool
	last   time.Time // that it was done
}

// due reports whether to lay all processes out anew now.
func (d *doubt) due(now time.Time) bool {
	if !d.wanted || now.Sub(d.last) < restOfDoubt {
		return false
	}
	d.wanted, d.last = false, now
	return true
}

// Update answers the requests before the given position, and tells the kernel side
// what changed. The table of processes knows all that happened until now.
func (u *Unwinder) Update(processes *process.Table, requests uint64) error {
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
			u.backlog.asked(want.PID, want.Image)
		}
		return nil
	}); err != nil {
		return err
	}
	if u.doubt.due(time.Now()) {
		u.loader.Reset()
	}
	u.layOut(processes)
	return nil
}

// Tidy lets go of what processes had that ended by now, and no longer waits for tables
// that take too long. The records of all forks until now were handled.
func (u *Unwinder) Tidy(now uint64) {
	if u.loader == nil {
		return
	}
	for pid := range u.exited {
		if u.loader.Gone(pid) {
			delete(u.exited, pid)
			u.backlog.forget(pid)
		}
	}
	if u.doubt.wanted {
		u.loader.Hurry()
	} else {
		u.loader.Settled(now)
	}
}

// layOut tells the kernel side of the processes that it asked for, and of those that
// changed.
func (u *Unwinder) layOut(processes *process.Table) {
	for todo := range u.backlog.due(time.Now()) {
		maps := processes.Mappings(todo.pid)
		if processes.Unread(todo.pid) {
			u.backlog.postpone(todo, time.Now()) // a layout without mappings would stay
			continue
		}
		if todo.asked {
			u.loader.Request(todo.pid, todo.image, maps)
		} else {
			u.loader.Remap(todo.pid, maps)
		}
		u.backlog.pace.took(todo.pid, len(maps), time.Now())
	}
}

// Losses adds what was left out.
func (u *Unwinder) Losses(l *profile.Losses) {
	if u.loader == nil {
		return
	}
	stats := u.loader.Stats()
	l[profile.LossUnwindFiles] = uint64(stats.Files)
	l[profile.LossUnwindMemory] = uint64(stats.NoRoom)
	l[profile.LossUnwindProcesses] = stats.Processes + stats.Cut
}

// Problem returns the first reason why something was left out, nil if nothing was.
func (u *Unwinder) Problem() error {
	if u.loader == nil {
		return nil
	}
	return u.loader.Stats().Failure
}

// Memory returns the most memory of the kernel side's tables, in bytes.
func (u *Unwinder) Memory() uint64 {
	if u.loader == nil {
		return 0
	}
	return u.loader.MapMemory()
}

// Close gives the tables up.
func (u *Unwinder) Close() error {
	if u.loader == nil {
		return nil
	}
	return u.loader.Close()
}
