// Package unwinding keeps the kernel side's unwind tables up to date while it
// samples, as processes start, map files, execute programs and exit.
package unwinding

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/runtimes/known"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/unwind/unwindmap"
)

// Options select how to unwind user stacks.
type Options struct {
	// Mode is "auto" or "" for unwind tables, with frame pointers for files
	// without tables; "dwarf" for tables only; "fp" for frame pointers only.
	Mode string
	// Memory limits the kernel memory for tables, in bytes; 0 means the default.
	Memory int64
	// Scope is the kind of the target. KernelOnly means that no user stacks are
	// unwound.
	Scope      target.Scope
	KernelOnly bool
	// NativeOnly leaves out the frames of language runtimes.
	NativeOnly bool
}

// HasTables reports whether there will be unwind tables.
func (o Options) HasTables() bool { return o.Mode != unwindFP && !o.KernelOnly }

// Values of Mode.
const (
	unwindAuto  = "auto"
	unwindDwarf = "dwarf"
	unwindFP    = "fp"
)

// Maximum times to wait for unwind tables before sampling: for the whole system, or
// for the given targets. Remaining tables are built while sampling.
const (
	waitForMany = 2 * time.Second
	waitForFew  = 10 * time.Second
)

// AlertAtLaunch is the maximum time that a command takes to map its libraries.
// Samples in a library cannot be unwound before its mapping is known.
const AlertAtLaunch = 100 * time.Millisecond

// Unwinder keeps the kernel side's unwind tables up to date. It is independent of
// sources: any probe that unwinds stacks can use its tables. The zero value is for
// frame pointers only, and does nothing.
type Unwinder struct {
	loader *unwindmap.Loader
	// By is the method for the kernel side.
	By      bpf.UnwindMode
	backlog backlog
	// exited holds the processes whose first thread has exited.
	exited map[int]departure
	doubt  doubt
	// cpuTime is what processes had used at the last call of Prepare, in units of [procfs.Tick].
	cpuTime map[int]uint64
	// Runtimes tracks the language runtimes of processes; nil with NativeOnly.
	Runtimes *known.Tracker
	// Ahead makes all tables of the target before samples need them, for sources that are no
	// [source.Rewalker].
	Ahead bool
	// Leaves, if not nil, reports whether rules leave out a running process. It needs no tables.
	Leaves func(pid int) bool
}

// leaves reports whether a process needs no tables.
func (u *Unwinder) leaves(pid int) bool { return u.Leaves != nil && u.Leaves(pid) }

// Load loads the maps for tables, unless the mode is frame pointers only. finder
// finds debug files, types caches the kernel's BTF.
func (u *Unwinder) Load(o Options, finder *debugfile.Finder, types *btf.Cache) (err error) {
	mode, by := unwindmap.Auto, bpf.UnwindByBoth
	switch o.Mode {
	case "", unwindAuto:
	case unwindDwarf:
		mode, by = unwindmap.Tables, bpf.UnwindByTables
	case unwindFP:
	default:
		return usage.Errorf("unwinding method %q: choose auto, dwarf or fp", o.Mode)
	}
	if !o.HasTables() {
		return nil
	}
	u.By = by
	u.backlog, u.exited, u.doubt = newBacklog(), map[int]departure{}, doubt{}
	u.loader, err = unwindmap.New(unwindmap.Options{
		Finder: finder.Local(),
		Types:  types,
		Mode:   mode,
		Memory: o.Memory,
		Few:    o.Scope != target.System && o.Scope != target.Cgroup,
	})
	if err == nil && !o.NativeOnly {
		u.Runtimes = known.NewTracker(u.loader.Runtimes())
	}
	return err
}

// HasTables reports whether there are tables to keep up to date.
func (u *Unwinder) HasTables() bool { return u.loader != nil }

// Snapshots returns an empty set of snapshots that wait for u's tables.
func (u *Unwinder) Snapshots() Snapshots { return Snapshots{loader: u.loader, leaves: u.leaves} }

// Replacements returns the maps to load a probe with.
func (u *Unwinder) Replacements() map[string]*ebpf.Map {
	if u.loader == nil {
		return nil
	}
	return u.loader.Replacements()
}

// HandleRecord handles a sideband record. Call it before the table of processes
// handles the record.
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
			u.exited[r.PID] = departure{}
		}
	case perfevent.Lost:
		u.doubt.wanted = true
	}
}

// Mapped notes that a process has mapped code.
func (u *Unwinder) Mapped(pid int) {
	if u.loader != nil && u.loader.Known(pid) {
		u.backlog.mapped(pid)
	}
}

// Prepare prepares for samples of running processes, of all if pids is nil. It begins with those that used
// the most CPU time since the last call. If beginning is set, the processes are about to start, so Prepare
// includes the libraries that they will need.
//
// A table is made ahead if samples would be incomplete without it, and for given processes and those that used
// CPU time since the last call: on a busy machine, or at a high rate, the ring does not hold the snapshots
// of their first samples. Other tables are made when a sample needs them.
func (u *Unwinder) Prepare(processes *process.Table, pids []int, beginning bool) error {
	wanted := map[int]bool{}
	for _, pid := range pids {
		wanted[pid] = true
	}
	images, before := map[int]uint64{}, u.cpuTime
	u.cpuTime = map[int]uint64{}
	if err := u.loader.Tasks(func(pid int, image uint64) {
		if (pids == nil || wanted[pid]) && !u.leaves(pid) {
			images[pid] = image
			if s, err := procfs.Process(pid).Stat(); err == nil { // otherwise, it has exited
				u.cpuTime[pid] = s.CPU
			}
		}
	}); err != nil {
		return err
	}
	used := func(pid int) uint64 { return u.cpuTime[pid] - min(before[pid], u.cpuTime[pid]) }
	busiest := slices.SortedFunc(maps.Keys(images), func(a, b int) int { return cmp.Compare(used(b), used(a)) })
	for _, pid := range busiest {
		maps := processes.Mappings(pid)
		if beginning {
			libraries := Libraries(processes, pid)
			u.Runtimes.Begins(maps, libraries)
			u.prepareMaps(mapped(libraries), true)
		}
		if len(maps) == 0 {
			continue
		}
		if !u.loader.Known(pid) {
			u.Runtimes.Mapped(pid, images[pid], maps)
		}
		if u.prepareMaps(maps, pids != nil || before != nil && used(pid) > 0) {
			u.loader.Request(pid, images[pid], maps)
		}
	}
	return nil
}

// littleCode is a number of bytes of code without unwind information that is analyzed in some 10 ms.
const littleCode = 1 << 20

// prepareMaps makes the tables of a process's mappings if samples would be incomplete without them, or if
// the process is likely to be sampled. It reports whether it makes them.
func (u *Unwinder) prepareMaps(maps []process.Mapping, likely bool) bool {
	switch {
	case u.Ahead || u.Runtimes.NeedsTables(process.Files(maps)):
		u.loader.Prepare(maps, math.MaxUint64)
	case likely:
		u.loader.Prepare(maps, littleCode)
	default:
		return false
	}
	return true
}

// mapped returns mappings of files whose addresses are not known yet.
func mapped(files []*process.File) (maps []process.Mapping) {
	for _, f := range files {
		maps = append(maps, process.Mapping{Kind: process.KindFile, File: f})
	}
	return maps
}

// Wait waits for the tables that are being built, for a limited time.
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

// WithFrozenTables calls f while the tables do not change.
func (u *Unwinder) WithFrozenTables(f func() error) error {
	if u.loader == nil {
		return f()
	}
	return u.loader.WithFrozenTables(f)
}

// FDs returns descriptors that become readable when the kernel side requests a
// layout.
func (u *Unwinder) FDs() []int {
	if u.loader == nil {
		return nil
	}
	return []int{u.loader.Requests().FD()}
}

// Position returns the current end of the requests.
func (u *Unwinder) Position() uint64 {
	if u.loader == nil {
		return 0
	}
	return u.loader.Requests().Position()
}

// restOfDoubt is the minimum time between updates of all layouts. If one process
// floods the rings, records are lost all the time.
const restOfDoubt = time.Second

// doubt notes that records were lost, so that all layouts are doubtful: processes
// may have other mappings, and unknown children. Until they are updated, the layouts
// remain in use, but no layout ID is used again.
type doubt struct {
	wanted bool
	last   time.Time // time of the last update
}

// due reports whether to update all layouts now.
func (d *doubt) due(now time.Time) bool {
	if !d.wanted || now.Sub(d.last) < restOfDoubt {
		return false
	}
	d.wanted, d.last = false, now
	return true
}

// departure is a process whose first thread has exited. Its other threads may live on, and
// its parent may not have waited for it yet.
type departure struct {
	next, rest uint64 // when to look again, and the time between the last two looks, in ns
}

// Limits of the time between two checks of whether a process is gone.
const (
	restOfDeparture    = uint64(100 * time.Millisecond)
	maxRestOfDeparture = uint64(5 * time.Second)
)

// later returns the time of the next check, after twice the time since the last one.
func (d departure) later(now uint64) departure {
	rest := min(max(2*d.rest, restOfDeparture), maxRestOfDeparture)
	return departure{now + rest, rest}
}

// Update handles the requests before a position, which was taken after the time until
// (CLOCK_MONOTONIC, ns), and sends changes to the kernel side. The table of processes must be
// up to date.
func (u *Unwinder) Update(processes *process.Table, requests, until uint64) error {
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
		case want.Address != 0 && u.loader.Need(want.PID, want.Image, want.Address):
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
	u.loader.InheritLayouts()
	u.layOut(processes)
	u.loader.Answered(until)
	return nil
}

// Tidy frees the layouts of exited processes, and stops waiting for tables that take
// too long. All forks until now must have been handled.
func (u *Unwinder) Tidy(now uint64) {
	if u.loader == nil {
		return
	}
	for pid, d := range u.exited {
		switch {
		case now < d.next:
		case u.loader.Gone(pid):
			delete(u.exited, pid)
			u.backlog.forget(pid)
			u.Runtimes.Forget(pid)
		default:
			u.exited[pid] = d.later(now)
		}
	}
	if u.doubt.wanted {
		u.loader.Expire()
	} else {
		u.loader.Settled(now)
	}
}

// restOfLeft is the time until a process is examined again that was left out when the kernel side
// requested its layout: it may have changed, and the kernel side requests a layout once.
const restOfLeft = 5 * time.Second

// layOut updates the layouts of processes that the kernel side requested or that
// have changed.
func (u *Unwinder) layOut(processes *process.Table) {
	for todo := range u.backlog.due(time.Now()) {
		if u.leaves(todo.pid) {
			u.backlog.postpone(todo, time.Now().Add(restOfLeft))
			continue
		}
		maps := processes.Mappings(todo.pid)
		if processes.Unread(todo.pid) {
			u.backlog.postpone(todo, time.Now()) // otherwise, an empty layout would stay
			continue
		}
		u.layOutRuntime(todo, maps)
		u.prepareMaps(maps, false)
		if todo.asked {
			u.loader.Request(todo.pid, todo.image, maps)
		} else {
			u.loader.Remap(todo.pid, maps)
		}
		u.backlog.pace.took(todo.pid, len(maps), time.Now())
	}
}

// layOutRuntime adds a process's runtime to the kernel side, before the process's layout.
func (u *Unwinder) layOutRuntime(of task, maps []process.Mapping) {
	image, known := of.image, true
	if !of.asked {
		image, known = u.loader.Image(of.pid)
	}
	if known {
		u.Runtimes.Mapped(of.pid, image, maps)
	}
}

// Losses adds u's losses to l.
func (u *Unwinder) Losses(l *profile.Losses) {
	if u.loader == nil {
		return
	}
	stats := u.loader.Stats()
	l[profile.LossUnwindFiles] = uint64(stats.Files)
	l[profile.LossUnwindMemory] = uint64(stats.NoRoom)
	l[profile.LossUnwindProcesses] = stats.Processes + stats.Cut
}

// Problem returns the first error that caused a loss, nil if there is none.
func (u *Unwinder) Problem() error {
	if u.loader == nil {
		return nil
	}
	return u.loader.Stats().Failure
}

// Memory returns the peak memory of the kernel side's tables, in bytes.
func (u *Unwinder) Memory() uint64 {
	if u.loader == nil {
		return 0
	}
	return u.loader.MapMemory()
}

// EvictUnused frees the kernel memory of tables that were not used since its last call.
func (u *Unwinder) EvictUnused() {
	if u.loader != nil {
		u.loader.EvictUnused()
	}
}

// Close frees the tables.
func (u *Unwinder) Close() error {
	if u.loader == nil {
		return nil
	}
	stats := u.loader.Stats()
	slog.Debug("unwind tables", "files", stats.Tables, "bytes", stats.Bytes, "noRoom", stats.NoRoom,
		"peakPages", stats.Pages.Peak, "evictedPages", stats.Pages.Evicted, "reloadedPages", stats.Pages.Reloaded)
	return u.loader.Close()
}
