package unwindmap

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/process"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/unwind"
)

// Loader compiles the tables of files that processes have mapped, and tells the
// kernel's walker of them. Its methods may be called from several goroutines,
// and return soon.
type Loader struct {
	config config
	kernel kernel
	pages  *pages
	ctx    context.Context
	cancel context.CancelFunc

	mu        sync.Mutex
	idle      sync.Cond // nothing is queued, compiled or reloaded
	working   sync.WaitGroup
	rules     *rules
	room      *runs // mappings
	files     map[fileKey]*file
	unused    []*file // that no layout needed when they were added, longest first
	queue     []*file
	wanted    []uint32 // pages
	workers   int
	reloading bool
	processes map[int]*proc
	unborn    []unborn
	layouts   map[uint64]*layout // by their words
	pending   []*file            // by when they were first wanted; some are done
	starving  []*wait            // that need room
	retired   []retired
	settling  bool
	salts     uint32 // how many were given out
	stats     Stats

	maps     *kernelMaps // nil for a stand-in
	requests *ringbuf.Reader
}

// fileKey names what has a table.
type fileKey struct {
	file *process.File
	kind process.Kind
}

// file is a mapped file's table, or that there is none (yet).
type file struct {
	key       fileKey
	urgent    bool      // a process that needs it is running
	since     time.Time // when it was first wanted
	late      bool      // no process waits for it any more
	done      bool      // what follows holds
	placement placement
	words     run
	fallback  uint32
	layouts   map[*layout]bool // that need it
	waiting   []*wait
}

// proc is a process that has an entry in the kernel's map, or will.
type proc struct {
	pid   int
	image uint64
	// past says that it has none, and never will: see [Past].
	past bool
	// sources is what it has mapped, layout what the kernel's walker knows of
	// it, nil for nothing.
	sources []process.Mapping
	layout  *layout
	// wait is what keeps it from getting a layout of sources, if anything.
	wait *wait
	cut  bool // it has more mappings than fit
	late bool // there was no room for them at first
}

// unborn is a child that the kernel side had no entry of when the fork was told.
type unborn struct {
	parent, child int
	at            uint64 // the fork's time
}

// birth is how long the kernel takes at most from telling of a fork to the child's
// entry, in ns: next to no time, unless others take the CPU.
const birth = uint64(time.Second)

// wait is a process that waits for tables, or for room.
type wait struct {
	proc *proc
	held int // files that have to be compiled before it gets a layout
}

// layout is one that programs may read.
type layout struct {
	at       run
	word     uint64
	cut      bool
	sources  []process.Mapping
	files    []*file
	procs    map[*proc]bool
	extended bool // another one has its salt
	retired  bool
	// next is what a process that had this one got after it.
	next *layout
}

// retired is a layout that no process has any more.
type retired struct {
	layout *layout
	at     uint64 // time
}

// config are settings of a loader.
type config struct {
	mode Mode
	// memory bounds the tables in kernel memory, in bytes.
	memory int64
	sizes
	// mappingsEach bounds the mappings of a process.
	mappingsEach int
	// finder finds separate debug files, nil for none.
	finder *debugfile.Finder
}

// newLoader returns a loader that writes k.
func newLoader(k kernel, c config) *Loader {
	l := &Loader{
		config: c, kernel: k, pages: newPages(k, c.pages, c.memory),
		rules: newRules(c.rules), room: newRuns(c.mappings),
		files: map[fileKey]*file{}, processes: map[int]*proc{},
		layouts: map[uint64]*layout{},
	}
	l.idle.L = &l.mu
	l.ctx, l.cancel = context.WithCancel(context.Background())
	k.writeRules(l.rules.unsupported, []unwind.Rule{{Kind: unwind.KindUnsupported}})
	return l
}

// Request tells the kernel side what process pid, as it is at the given image,
// has mapped. The kernel asked for that: the process runs.
func (l *Loader) Request(pid int, image uint64, maps []process.Mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told(pid, image, maps) {
		return // it asked because of an address that is none
	}
	p := l.expect(pid, image, maps)
	if p.wait == nil {
		return
	}
	for _, m := range maps {
		if f := l.file(m); f != nil {
			f.urgent = true
		}
	}
	// Those that are at work may be at a large file that is not.
	l.hire(2 * runtime.GOMAXPROCS(0))
}

// told reports whether the kernel side knows of a process's mappings already.
func (l *Loader) told(pid int, image uint64, maps []process.Mapping) bool {
	p := l.processes[pid]
	if p == nil || p.image != image || p.layout == nil || p.wait != nil || !slices.Equal(p.sources, maps) {
		return false
	}
	e, ok, err := l.kernel.process(pid)
	return ok && err == nil && e == entry{Image: image, Layout: p.layout.word}
}

// Expect does so before the kernel asks. What is asked for goes first.
func (l *Loader) Expect(pid int, image uint64, maps []process.Mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expect(pid, image, maps)
}

func (l *Loader) expect(pid int, image uint64, maps []process.Mapping) *proc {
	p := l.processes[pid]
	if p == nil {
		p = &proc{pid: pid}
		l.processes[pid] = p
	}
	p.image = image
	l.change(p, maps)
	return p
}

// Prepare makes the tables of files that a process is about to map.
func (l *Loader) Prepare(files []*process.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range files {
		l.file(process.Mapping{Kind: process.KindFile, File: f})
	}
}

// Known reports whether the kernel side has a layout of process pid.
func (l *Loader) Known(pid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.processes[pid] != nil
}

// Remap tells it that a process that it knows has other mappings now.
func (l *Loader) Remap(pid int, maps []process.Mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.processes[pid]; p != nil && !slices.Equal(p.sources, maps) {
		l.change(p, maps)
	}
}

// Forked notes that a process forked another at a time (CLOCK_MONOTONIC, ns): the
// kernel side has given it the layout of its parent, or is about to, since the fork
// is told of before that.
func (l *Loader) Forked(parent, child int, at uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(l.unborn, func(u unborn) bool { return u.child == parent }) {
		l.adoptUnborn(0) // the parent runs by now
	}
	if !l.adopt(parent, child) {
		l.unborn = append(l.unborn, unborn{parent, child, at})
	}
}

// adoptUnborn adopts the unborn children that the kernel side has entries of by now,
// and gives up those that were forked before the given time. It takes them in the
// order of their forks, so that a parent comes before its children; pids alone do not
// tell the order, because two forks can reuse each other's.
func (l *Loader) adoptUnborn(before uint64) {
	l.unborn = slices.DeleteFunc(l.unborn, func(u unborn) bool { return l.adopt(u.parent, u.child) || u.at < before })
}

// adopt takes note of a child's layout, and reports false if the child may yet get
// one.
func (l *Loader) adopt(parent, child int) bool {
	from := l.processes[parent]
	if from == nil {
		return true // it is asked for when it is sampled
	}
	e, ok, err := l.kernel.process(child)
	if !ok || err != nil {
		return err != nil
	}
	if p := l.processes[child]; p != nil {
		if p.image == e.Image {
			return true // it was expected
		}
		l.remove(p) // the pid's last owner
	}
	shared := l.layouts[e.Layout]
	if shared == nil {
		l.drop(child)
		return true
	}
	p := &proc{pid: child, image: e.Image}
	l.join(p, shared)
	l.processes[child] = p
	p.sources = shared.sources
	if shared != from.layout || from.wait != nil {
		l.change(p, from.sources) // the parent's changed, or is about to
	}
	return true
}

// Ended notes that a process ended, or runs another program: the kernel's entry
// of it is worthless.
func (l *Loader) Ended(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bury(pid) || l.processes[pid] != nil {
		l.drop(pid)
	}
}

// bury forgets an unborn child, and reports whether there was one.
func (l *Loader) bury(pid int) bool {
	n := len(l.unborn)
	l.unborn = slices.DeleteFunc(l.unborn, func(u unborn) bool { return u.child == pid })
	return len(l.unborn) < n
}

// Gone reports whether the kernel side has no entry of process pid, or not any
// more.
func (l *Loader) Gone(pid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.processes[pid]
	if p == nil && len(l.unborn) == 0 {
		return true
	}
	if _, ok, err := l.kernel.process(pid); ok || err != nil {
		return false
	}
	l.bury(pid)
	if p != nil {
		l.remove(p)
	}
	return true
}

// Reset forgets all processes, because it was not told of all that happened: forks,
// for one, whose children have layouts that they are not known to have. The kernel
// side asks for them again.
func (l *Loader) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.kernel.forgetProcesses(); err != nil {
		l.fail(err)
	}
	for _, p := range l.processes {
		l.remove(p)
	}
	l.kernel.forgetRequests()
}

// Reload brings back a page that the kernel side asked for.
func (l *Loader) Reload(page uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = append(l.wanted, page)
	if l.reloading || l.ctx.Err() != nil {
		return
	}
	l.reloading = true
	l.working.Go(l.reload)
}

// Settled says that the loader was told of all forks up to the given time
// (CLOCK_MONOTONIC, ns). What no process can have any more is then used again.
func (l *Loader) Settled(until uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hurry()
	l.adoptUnborn(max(until, birth) - birth)
	for _, u := range l.unborn {
		until = min(until, u.at) // what was retired since may be its layout
	}
	n, _ := slices.BinarySearchFunc(l.retired, until, func(r retired, t uint64) int { return cmp.Compare(r.at, t) })
	if n == 0 || l.settling || l.ctx.Err() != nil {
		return
	}
	l.settling = true
	l.working.Go(func() { l.settle(until) })
}

// Wait returns when all that was asked for or expected is in the kernel's maps, or
// could not be brought there, or ctx ends.
func (l *Loader) Wait(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.idle.Broadcast()
	})
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.workers > 0 && ctx.Err() == nil {
		l.idle.Wait()
	}
}

// WithFrozenTables calls f while nothing changes that programs may read: [rcu.Wait] does not
// wait for those that sleep, which f may run.
func (l *Loader) WithFrozenTables(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pages.mu.Lock()
	defer l.pages.mu.Unlock()
	return f()
}

// Close ends all work.
func (l *Loader) Close() error {
	l.cancel()
	l.working.Wait()
	err := l.pages.close()
	if l.requests != nil {
		err = errors.Join(err, l.requests.Close())
	}
	if l.maps != nil {
		err = errors.Join(err, l.maps.close())
	}
	return err
}

// drop takes a process out.
func (l *Loader) drop(pid int) {
	if p := l.processes[pid]; p != nil {
		l.remove(p)
	}
	if err := l.kernel.deleteProcess(pid); err != nil {
		l.fail(err)
	}
}

// remove forgets a process of which the kernel side has no entry, or another's.
func (l *Loader) remove(p *proc) {
	delete(l.processes, p.pid)
	l.leave(p)
	p.wait = nil
}

// fail notes the first of the errors that make no difference but that something
// is left out.
func (l *Loader) fail(err error) {
	if l.stats.Failure == nil {
		l.stats.Failure = err
	}
}

// Stats is what a loader did and what it left out.
type Stats struct {
	// Tables and Bytes are of the files whose tables are there now, NoTable is
	// how many files have no unwind information.
	Tables, NoTable int
	Bytes           int64
	// Files is how many files' information could not be read, or not all of it,
	// NoRoom how many tables did not fit into the memory, Failure the first
	// error of any sort.
	Files, NoRoom int
	Failure       error
	// Processes counts those for whose mappings there was no room, at first or
	// at all, Cut those with more mappings than are kept.
	Processes, Cut uint64
	// Rules counts rules that there was no room for.
	Rules uint64
	Pages PageStats
}

// Stats returns what happened so far.
func (l *Loader) Stats() Stats {
	l.mu.Lock()
	stats := l.stats
	stats.Rules = l.rules.refused
	l.mu.Unlock()
	stats.Pages = l.pages.Stats()
	return stats
}
