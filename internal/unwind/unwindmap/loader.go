package unwindmap

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/ringbuf"
	"fulgur/internal/process"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/unwind"
)

// Loader compiles the tables of mapped files and passes them to the kernel's walker. Its
// methods are safe for concurrent use and do not block for long.
type Loader struct {
	config config
	kernel kernel
	pages  *pages
	ctx    context.Context
	cancel context.CancelFunc

	// mu guards the fields from rules to stats. Exported methods lock it. Unexported methods
	// need it held, unless their comment says that they lock it. pages has a separate lock;
	// mu is never locked while that is held.
	mu        sync.Mutex
	idle      sync.Cond // signals that nothing is queued, compiled or reloaded
	working   sync.WaitGroup
	rules     *rules
	room      *spans // space for mappings
	files     map[fileKey]*file
	unused    []*file // not used by any layout when added; least recently added first
	queue     []*file
	wanted    []uint32 // pages
	workers   int
	reloading bool
	processes map[int]*proc
	children  map[int]*newChild  // by child
	stale     map[int]bool       // pids whose entry in the kernel is obsolete
	reset     uint64             // time of the last Reset
	layouts   map[uint64]*layout // by layout word
	pending   []*file            // in the order in which they were queued; some are done
	noRoom    []*proc            // waiting for room
	retired   []retired
	settling  bool
	settled   time.Time // when settling last began
	salts     uint32    // number of salts handed out
	stats     Stats

	maps     *kernelMaps // nil in tests with a stand-in
	requests *ringbuf.Reader
}

// fileKey identifies a table of a file.
type fileKey struct {
	file *process.File
	kind process.Kind
	// code is whether code without unwind information is analyzed. This may take far longer than the
	// rest, and few files need it.
	code bool
}

// file is a table of a mapped file, or the fact that it has none (yet).
type file struct {
	key       fileKey
	queued    bool      // it is being made, or was
	urgent    bool      // the walk of a stack needs it
	ahead     uint64    // the most bytes of its code that are analyzed before a walk needs it
	since     time.Time // when it was queued
	late      bool      // stacks no longer wait for it
	done      bool      // the fields below are valid
	unread    uint64    // bytes of its code that are not analyzed
	placement placement
	words     span
	fallback  uint32
	layouts   map[*layout]bool // the layouts that use it
	waiting   map[*proc]bool   // the processes whose stacks need it
}

// proc is a process that has an entry in the kernel's map, or will have one.
type proc struct {
	pid   int
	image uint64
	// past marks a [Past], which never has an entry.
	past bool
	// sources holds the process's mappings. layout is their layout in the kernel, or nil.
	sources []process.Mapping
	layout  *layout
	noRoom  bool // there is no room for sources
	late    bool // there was none at first
	cut     bool // it has more mappings than fit
	gone    bool // it was removed
}

// newChild is a child whose fork was reported but whose entry in the kernel has not been read
// yet. Entries are read once per round, because most children soon execute a program or end.
type newChild struct {
	at uint64 // time of the fork
	// sources, layout and noRoom describe the parent when the fork was reported: it may have
	// ended before the child's entry is read. sources is nil if they are unknown.
	sources []process.Mapping
	layout  *layout
	noRoom  bool
}

// childTimeout bounds the time from the report of a fork to the kernel's entry for the child,
// in ns. This time is tiny unless the task is preempted in between.
const childTimeout = uint64(time.Second)

// layout is a layout that programs may read.
type layout struct {
	at       span
	word     uint64
	cut      bool
	sources  []process.Mapping
	files    map[*file]uint32 // rows of mappings whose table is not made yet, or 0
	procs    map[*proc]bool
	extended bool // another layout has taken over its salt
	retired  bool
	// next is the layout that replaced this one in a process.
	next *layout
}

// retired is a layout that no process uses anymore.
type retired struct {
	layout *layout
	at     uint64 // when it was retired
}

// config holds the settings of a loader.
type config struct {
	mode Mode
	// settleInterval is the minimum time between two releases of unused space, unless a
	// process waits for room. Each release waits for all running BPF programs.
	settleInterval time.Duration
	// memory bounds the tables in kernel memory, in bytes.
	memory int64
	sizes
	// mappingsEach bounds the mappings of a process.
	mappingsEach int
	// finder finds separate debug files; nil means none.
	finder *debugfile.Finder
}

// newLoader returns a loader that writes to k.
func newLoader(k kernel, c config) *Loader {
	l := &Loader{
		config: c, kernel: k, pages: newPages(k, c.pages, c.memory),
		rules: newRules(c.rules, c.mode), room: newSpans(c.mappings),
		files: map[fileKey]*file{}, processes: map[int]*proc{}, children: map[int]*newChild{},
		stale: map[int]bool{}, layouts: map[uint64]*layout{},
	}
	l.idle.L = &l.mu
	l.ctx, l.cancel = context.WithCancel(context.Background())
	k.writeRules(l.rules.unsupported, []unwind.Rule{{Kind: unwind.KindUnsupported}})
	return l
}

// Request passes the mappings of process pid, in the state given by image, to the kernel.
// Tables are made when the walk of a stack needs them, see [Loader.Need].
func (l *Loader) Request(pid int, image uint64, maps []process.Mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.loaded(pid, image, maps) { // otherwise, the requesting address has no mapping
		l.lay(pid, image, maps)
	}
}

// Need makes the table that the walk of a stack of process pid lacks at an address. It reports false
// if the process, with this image, was not requested.
func (l *Loader) Need(pid int, image, addr uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.children[pid]; u != nil && l.inherit(pid, u) {
		delete(l.children, pid)
	}
	p := l.processes[pid]
	if p == nil || p.image != image {
		return false
	}
	l.need(p, addr)
	return true
}

// loaded reports whether the kernel already has a process's mappings.
func (l *Loader) loaded(pid int, image uint64, maps []process.Mapping) bool {
	p := l.processes[pid]
	if p == nil || p.image != image || p.layout == nil || p.noRoom || !slices.Equal(p.sources, maps) {
		return false
	}
	e, ok, err := l.kernel.process(pid)
	return ok && err == nil && e == entry{Image: image, Layout: p.layout.word}
}

// lay gives a process a layout.
func (l *Loader) lay(pid int, image uint64, maps []process.Mapping) {
	if u := l.children[pid]; u != nil {
		l.inherit(pid, u) // the child is running, so it has its parent's layout or none
		delete(l.children, pid)
	}
	p := l.processes[pid]
	if p == nil {
		p = &proc{pid: pid}
		l.processes[pid] = p
	}
	p.image, p.sources = image, maps
	l.renew(p)
}

// Prepare makes the tables of mappings before the walk of a stack needs them. It analyzes the code of
// files without unwind information for at most the given number of bytes. Tables that walks need are
// made first.
func (l *Loader) Prepare(maps []process.Mapping, code uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range maps {
		l.prepare(m, code)
	}
}

// Known reports whether the kernel has a layout of process pid, or may have one.
func (l *Loader) Known(pid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.processes[pid] != nil || l.children[pid] != nil
}

// Image returns the image of a process that has a layout or waits for room.
func (l *Loader) Image(pid int) (image uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.processes[pid]; p != nil {
		return p.image, true
	}
	return 0, false
}

// Remap passes the changed mappings of a process to the kernel, if it knows the process.
func (l *Loader) Remap(pid int, maps []process.Mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.children[pid]; u != nil {
		u.sources, u.layout = maps, nil
		if !l.inherit(pid, u) {
			return // there may still be an entry of the pid's previous owner
		}
		delete(l.children, pid)
	}
	if p := l.processes[pid]; p != nil && !slices.Equal(p.sources, maps) {
		l.change(p, maps)
	}
}

// Forked records a fork at a time (CLOCK_MONOTONIC, ns). If the kernel has an entry for the
// parent, it gives the child the same layout shortly after it reports the fork. Call
// [Loader.InheritLayouts] afterwards.
func (l *Loader) Forked(parent, child int, at uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.children, child) // the previous owner of the pid
	u := &newChild{at: at}
	if from := l.children[parent]; from != nil {
		u.sources, u.layout, u.noRoom = from.sources, from.layout, from.noRoom
	} else if from := l.processes[parent]; from != nil {
		u.sources, u.layout, u.noRoom = from.sources, from.layout, from.noRoom
	} else if at > l.reset {
		return // it will be requested when it is sampled
	}
	l.children[child] = u
	delete(l.stale, child)
}

// InheritLayouts reads the layouts of the children that were forked since its last call, and
// removes the entries of those that executed a program.
func (l *Loader) InheritLayouts() {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.children, l.inherit)
	if len(l.stale) > 0 {
		if err := l.kernel.deleteProcesses(slices.Collect(maps.Keys(l.stale))); err != nil {
			l.fail(err)
		}
		clear(l.stale)
	}
}

// inherit records a child's layout. It reports false if the child may still get one.
func (l *Loader) inherit(child int, u *newChild) bool {
	e, ok, err := l.kernel.process(child)
	if err != nil {
		l.fail(err)
	}
	if !ok || err != nil {
		return err != nil
	}
	if p := l.processes[child]; p != nil {
		if p.image == e.Image {
			return true // it was requested
		}
		l.remove(p) // the previous owner of the pid
	}
	shared := l.layouts[e.Layout]
	if shared == nil || u.sources == nil {
		l.drop(child) // it will be requested when it is sampled
		return true
	}
	p := &proc{pid: child, image: e.Image}
	l.setLayout(p, shared)
	l.processes[child] = p
	p.sources = shared.sources
	if shared != u.layout || u.noRoom {
		l.change(p, u.sources) // the mappings changed, or are about to
	}
	return true
}

// Ended records that a process executed another program, so its entry in the kernel is
// obsolete.
func (l *Loader) Ended(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.children[pid] != nil {
		delete(l.children, pid)
		l.stale[pid] = true // its image no longer runs, so deleting it is not urgent
	}
	if l.processes[pid] != nil {
		l.drop(pid)
	}
}

// Gone reports whether the kernel has no entry for process pid anymore.
func (l *Loader) Gone(pid int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.processes[pid]
	if p == nil && l.children[pid] == nil {
		return true
	}
	if _, ok, err := l.kernel.process(pid); ok || err != nil {
		return false
	}
	delete(l.children, pid)
	if p != nil {
		l.remove(p)
	}
	return true
}

// Reset forgets all processes after events were missed, such as forks whose children have
// unknown layouts. The kernel will request them again.
func (l *Loader) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.kernel.forgetProcesses(); err != nil {
		l.fail(err)
	}
	for _, p := range l.processes {
		l.remove(p)
	}
	// A fork at this moment may still copy its parent's entry.
	for _, u := range l.children {
		u.sources = nil
	}
	l.reset = monotonic.Now()
	l.kernel.forgetRequests()
}

// Answered notes that the kernel's requests from before a time (CLOCK_MONOTONIC, ns) were read.
// The kernel waits longer for the result of a request that was not.
func (l *Loader) Answered(until uint64) { l.kernel.answered(until) }

// Reload brings back a page that the kernel requested.
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

// Settled reports that all forks up to the given time (CLOCK_MONOTONIC, ns) have been passed
// to the loader. The loader then reuses space that no process can refer to anymore.
func (l *Loader) Settled(until uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	for child, u := range l.children {
		if u.at+childTimeout < until {
			l.inherit(child, u) // or it has ended
			delete(l.children, child)
		}
	}
	for _, u := range l.children {
		until = min(until, u.at) // its layout may have been retired since
	}
	n, _ := slices.BinarySearchFunc(l.retired, until, func(r retired, t uint64) int { return cmp.Compare(r.at, t) })
	if n == 0 || l.settling || l.ctx.Err() != nil {
		return
	}
	if time.Since(l.settled) < l.config.settleInterval && len(l.noRoom) == 0 {
		return
	}
	l.settling, l.settled = true, time.Now()
	l.working.Go(func() { l.settle(until) })
}

// Wait waits until all tables that were prepared are in the kernel's maps or have failed, or
// until ctx is done, and gives them to the processes that map their files.
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
	for _, p := range l.processes {
		l.update(p)
	}
}

// WithFrozenTables calls f while nothing changes that programs may read. [rcu.Wait] does
// not wait for sleepable programs, which f may run.
func (l *Loader) WithFrozenTables(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pages.mu.Lock()
	defer l.pages.mu.Unlock()
	return f()
}

// EvictUnused moves the tables that no program used since its last call from kernel memory to
// disk. They come back on demand. The first call moves none.
func (l *Loader) EvictUnused() {
	if err := l.pages.evictUnused(); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fail(err)
	}
}

// Close stops all work. Further calls do nothing.
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

// drop removes a process.
func (l *Loader) drop(pid int) {
	if p := l.processes[pid]; p != nil {
		l.remove(p)
	}
	if err := l.kernel.deleteProcesses([]int{pid}); err != nil {
		l.fail(err)
	}
}

// remove forgets a process that has no entry in the kernel, or whose entry belongs to
// another process.
func (l *Loader) remove(p *proc) {
	delete(l.processes, p.pid)
	l.dropLayout(p)
	p.gone = true
}

// fail records the first error that makes the loader leave something out.
func (l *Loader) fail(err error) {
	if l.stats.Failure == nil {
		l.stats.Failure = err
	}
}

// Stats counts a loader's work, and the data that it left out.
type Stats struct {
	// Tables and Bytes describe the files that currently have tables. NoTable is the
	// number of files without unwind information.
	Tables, NoTable int
	Bytes           int64
	// Files is the number of files whose unwind information could not be read completely,
	// NoRoom the number of tables that did not fit into memory, and Failure the first error
	// of any kind.
	Files, NoRoom int
	Failure       error
	// Processes is the number of processes without room for their mappings, at least at
	// first. Cut is the number of processes with more mappings than are kept.
	Processes, Cut uint64
	// Rules is the number of rules left out for lack of room.
	Rules uint64
	Pages PageStats
}

// Stats returns the statistics so far.
func (l *Loader) Stats() Stats {
	l.mu.Lock()
	stats := l.stats
	stats.Rules = l.rules.refused
	l.mu.Unlock()
	stats.Pages = l.pages.Stats()
	return stats
}
