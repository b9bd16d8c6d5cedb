package process

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"fulgur/internal/files/answer"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
)

// Options are a table's settings; the zero value has a default for each.
type Options struct {
	// MaxOpenFiles bounds the mapped files that are kept open, 4096 if 0.
	// Beyond it, those that no stack has met are closed first; they are
	// opened again when read, if they still can be.
	MaxOpenFiles int
	// Sync drains the sideband into the table. It is called after /proc
	// was read for a process, to learn whether the process has left for
	// another program in the meantime, which would make what was read
	// untrue of the past.
	Sync func()
}

// Table knows what was mapped where in every process. Apart from the files it
// hands out, it is not safe for concurrent use.
type Table struct {
	images   map[int]*image // the newest of each pid
	files    *files
	perfMaps perfMaps
	storms   map[int]*storm // of those that mapped code lately, or too often
	late     lateMaps
	sync     func()
	replaced func(pid int)
	mapped   func(pid int)
	now      uint64 // time of the newest record
	gone     uint64
}

// Location is the place of an address.
type Location struct {
	Kind Kind
	// File is the mapped file, for KindFile alone. (A file in memory that is
	// not an ELF file is taken for a JIT's code, and is KindAnon.)
	File *File
	// Offset is the place in the file for KindFile, else the address itself.
	Offset uint64
	// MapStart and MapLimit are the ends of the mapping and MapOffset the
	// file offset of MapStart; all are 0 for KindUnknown.
	MapStart, MapLimit, MapOffset uint64
	// PerfMap is what may name the code, for KindAnon alone.
	PerfMap *PerfMap
}

// NewTable returns an empty table.
func NewTable(o Options) *Table {
	t := &Table{
		images:   map[int]*image{},
		storms:   map[int]*storm{},
		files:    newFiles(cmp.Or(o.MaxOpenFiles, 4096)),
		sync:     o.Sync,
		replaced: func(int) {},
		mapped:   func(int) {},
	}
	t.perfMaps = perfMaps{followed: map[int]*PerfMap{}, spool: spool{limit: spoolLimit}, patience: t.files.patience}
	return t
}

// OnReplaced has fn called whenever executable memory of a running process
// may have been replaced by other code at the same addresses, other than by
// an exec: equal stacks from before and after are then not the same. It may
// be called for replacements of memory that no stack has met.
func (t *Table) OnReplaced(fn func(pid int)) { t.replaced = fn }

// Apply notes what a sideband record tells. Records should come in order of
// time, as [Sideband.Drain] hands them out. A [perfevent.Lost] is followed by
// an [Table.Invalidate].
func (t *Table) Apply(r perfevent.Record) {
	t.now = max(t.now, r.When())
	switch r := r.(type) {
	case perfevent.Mmap2:
		t.mmap(r)
	case perfevent.Comm:
		if r.Exec {
			// The kernel reports the exec when the old address space is
			// gone and nothing of the new program is mapped yet.
			t.push(r.PID, &image{from: r.Time})
		}
	case perfevent.Fork:
		switch i := t.images[r.PID]; {
		case r.PID <= 0: // foreign to our pid namespace
		case r.PID != r.PPID:
			t.push(r.PID, t.image(r.PPID).fork(r.PPID, r.Time))
		case i != nil:
			i.threaded = true
		}
	case perfevent.Exit:
		// What ends after the first thread are the others; who is last, no
		// record tells.
		if i := t.images[r.PID]; i != nil && (r.TID == r.PID || i.exit != 0) {
			i.exit = r.Time
		}
	case perfevent.Lost:
		t.Invalidate()
	}
}

// Applied tells the table that there are no more records for now. The table then opens
// the files that the records named; otherwise it does so at the next query.
func (t *Table) Applied() {
	t.calmAll(monotonic.Now())
	t.files.openQueued()
}

// image returns the newest image of a pid; a pid not met before has been
// running all along.
func (t *Table) image(pid int) *image {
	i := t.images[pid]
	if i == nil {
		i = &image{base: &base{pid: pid}, threaded: true}
		t.images[pid] = i
	}
	return i
}

// push makes i what the pid runs from i.from on.
func (t *Table) push(pid int, i *image) {
	if old := t.images[pid]; old != nil {
		i.prev = old
		if i.parent == 0 {
			i.parent = old.parent
		}
		if i.perfMap == nil {
			t.perfMaps.leave(pid)
		}
	}
	t.images[pid] = i
}

func (t *Table) mmap(r perfevent.Mmap2) {
	limit := r.Addr + r.Len
	if limit <= r.Addr || r.PID <= 0 || t.skip(r.PID, r.Time) {
		return
	}
	i := t.image(r.PID)
	m := Map{Start: r.Addr, Limit: limit, Offset: r.Pgoff, Maj: r.Maj, Min: r.Min, Ino: r.Ino, Name: r.Filename}
	mapped := t.mapping(m, r.InoGen, r.PID, i.parent)
	mapped.from = r.Time
	if i.has(mapped) {
		return
	}
	fresh := i.base.replaces(mapped)
	if i.insert(mapped) || fresh {
		t.replaced(r.PID)
	}
	t.mapped(r.PID)
}

// mapping turns what the kernel tells of a mapping into ours, and queues its file to be
// opened.
func (t *Table) mapping(m Map, gen uint64, pid, parent int) mapping {
	mapped := mapping{start: m.Start, limit: m.Limit, off: m.Offset, kind: classify(m.Name, m.Ino)}
	if mapped.kind != KindFile {
		return mapped
	}
	key := FileKey{m.Maj, m.Min, m.Ino, gen}
	f := t.files.intern(key, m.Name, source{pid: pid, parent: parent, start: m.Start, limit: m.Limit})
	if isMemfd(m.Name) {
		t.files.openQueued()
		if !f.isELF() {
			mapped.kind = KindAnon
			return mapped
		}
	}
	mapped.file = f
	return mapped
}

// vsyscall is the page of legacy system calls on amd64, at the same place in
// every process. Other machines have no user space up there.
const vsyscall = 0xffffffffff600000

// Resolve returns the place of a user-space address of process pid at the
// given time. All records up to that time should have been applied.
func (t *Table) Resolve(pid int, addr, time uint64) Location {
	if pid <= 0 {
		return Location{Offset: addr}
	}
	if addr >= vsyscall && addr < vsyscall+0x1000 {
		return Location{Kind: KindVsyscall, Offset: addr, MapStart: vsyscall, MapLimit: vsyscall + 0x1000}
	}
	t.files.openQueued()
	i := t.image(pid)
	for i != nil && time < i.from {
		i = i.prev
	}
	if i == nil {
		return Location{Offset: addr}
	}
	m, ok := i.lookup(addr, time)
	if i.unread() && (!ok || i.base.before != nil) {
		t.load(pid, i)
		m, ok = i.lookup(addr, time)
	}
	if !ok {
		return Location{Offset: addr}
	}
	l := Location{Kind: m.kind, File: m.file, Offset: addr, MapStart: m.start, MapLimit: m.limit, MapOffset: m.off}
	if m.kind == KindAnon {
		l.PerfMap = t.perfMap(pid, i, time)
	}
	if m.file != nil {
		l.Offset = addr - m.start + m.off
		if period := t.files.period.Load(); m.file.met.Load() != period { // keeps the cache line shared
			m.file.met.Store(period)
		}
	}
	return l
}

// load reads the base of i, an image of process pid, from /proc: from the
// process that it began with, or if that is gone or runs something else by
// now, from pid. The order matters for short-lived children: between fork and
// exec they are their parent's image, and by now may have left it.
func (t *Table) load(pid int, i *image) {
	i.asked = true
	b := i.base
	candidates := []int{b.pid, pid}
	if b.pid == pid {
		candidates = candidates[:1]
	}
	exited := false
	for _, candidate := range candidates {
		if !t.runs(candidate, b) {
			exited = true
			continue
		}
		maps, err := t.baseMaps(candidate, b)
		if errors.Is(err, answer.ErrNone) {
			i.asked = false // it may answer later
			return
		}
		if err == nil && t.sync != nil {
			t.sync()
		}
		if err != nil || !t.runs(candidate, b) {
			exited = exited || !errors.Is(err, errNoMaps)
			continue
		}
		parent := t.images[candidate].parent
		for _, m := range maps {
			b.maps = append(b.maps, t.mapping(m, 0, candidate, parent))
		}
		t.files.openQueued()
		b.read, b.before = true, nil
		return
	}
	if exited || i.exit != 0 {
		t.gone++
	}
}

// runs reports whether process pid still runs what has b as its base.
func (t *Table) runs(pid int, b *base) bool {
	i := t.images[pid]
	return i != nil && i.base == b
}

// errNoMaps: a kernel thread, or a process about to exit or amid an exec.
var errNoMaps = errors.New("no executable mappings")

// Maps returns the executable mappings of process pid as /proc has them now. Reading
// them waits for threads that change them, and these may wait for a file system that does
// not answer. The error then wraps [answer.ErrNone].
func (t *Table) Maps(pid int) ([]Map, error) {
	return answer.AskPatiently(t.files.patience, near(pid), func(*answer.Visit) ([]Map, error) { return readMaps(pid) },
		func([]Map, error) {}) // what is late may be untrue by now
}

// baseMaps is [Table.Maps] of what b began with. An answer that came too late holds
// as long as the process runs the same image: what it mapped since, records tell.
func (t *Table) baseMaps(pid int, b *base) ([]Map, error) {
	if maps, ok := t.late.take(b); ok {
		return maps, nil
	}
	return answer.AskPatiently(t.files.patience, near(pid), func(*answer.Visit) ([]Map, error) { return readMaps(pid) },
		func(maps []Map, err error) {
			if err == nil {
				t.late.put(b, maps)
			}
		})
}

// Unread reports whether the table does not know yet what process pid had mapped when the
// table first met it, because /proc has not answered in time. It may answer later.
func (t *Table) Unread(pid int) bool {
	i := t.images[pid]
	return i != nil && i.unread()
}

// readMaps is [Table.Maps] for who may wait.
func readMaps(pid int) ([]Map, error) {
	b, err := procfs.ReadFile(pid, "maps")
	if err != nil {
		return nil, err
	}
	if len(b) == 0 {
		if tid := survivor(pid); tid != 0 && tid != pid {
			if b, err = procfs.ReadFile(tid, "maps"); err != nil {
				return nil, err
			}
		}
	}
	maps, err := ParseMaps(b)
	if err == nil && len(maps) == 0 {
		err = errNoMaps
	}
	return maps, err
}

// Invalidate says that records were lost: what is known of the running
// processes may no longer hold. Each is read anew when it is next asked
// about; those that are gone by then are left at what was known.
func (t *Table) Invalidate() {
	for pid, i := range t.images {
		t.invalidate(pid, i)
	}
}

// invalidate says so of process pid, whose image is i.
func (t *Table) invalidate(pid int, i *image) {
	// An image that holds nothing yet has nothing to lose.
	if i.base != nil && !i.base.read && len(i.live) == 0 {
		i.asked = false
		return
	}
	t.push(pid, &image{
		from: t.now, exit: i.exit, threaded: true, parent: i.parent, forked: i.forked,
		base: &base{pid: pid, before: i.known()}, perfMap: i.perfMap,
	})
}

// Forget drops what nothing later than before, the time of the oldest stack
// that may still come, can need: processes that exited, and mappings that
// were displaced, by then.
func (t *Table) Forget(before uint64) {
	for pid, i := range t.images {
		if i.exit != 0 && i.exit < before {
			if !i.threaded || survivor(pid) == 0 {
				delete(t.images, pid)
				t.perfMaps.leave(pid)
				continue
			}
			i.exit = monotonic.Now() // ask again when that is long past
		}
		i.forget(before)
	}
	t.files.sweep(t.eachFile)
}

// NextPeriod says that stacks of the period before the last are not needed any
// more: files that only those have met may be forgotten. Without it all that
// stacks have met are kept.
func (t *Table) NextPeriod() { t.files.period.Add(1) }

// eachFile calls fn with the file of every mapping.
func (t *Table) eachFile(fn func(*File)) {
	for _, newest := range t.images {
		for i := newest; i != nil; i = i.prev {
			i.eachFile(fn)
		}
	}
}

func (i *image) eachFile(fn func(*File)) {
	lists := [][]mapping{i.live, i.past}
	if i.base != nil {
		lists = append(lists, i.base.maps)
		if i.base.before != nil {
			i.base.before.eachFile(fn)
		}
	}
	for _, maps := range lists {
		for _, m := range maps {
			if m.file != nil {
				fn(m.file)
			}
		}
	}
}

// Gone returns how many processes had exited, or gone on to another program,
// before their mappings could be read.
func (t *Table) Gone() uint64 { return t.gone }

// perfMap returns the perf map of process pid at the given time, when it ran
// i, or if it has none, that of the process that it was forked from: a child
// goes on with its parent's code, and most JITs do not write another map for
// it.
func (t *Table) perfMap(pid int, i *image, time uint64) *PerfMap {
	if i.perfMap == nil {
		i.perfMap = t.findPerfMap(pid, i)
	}
	return i.perfMap.at(time)
}

func (t *Table) findPerfMap(pid int, i *image) *PerfMap {
	if t.images[pid] != i {
		return &PerfMap{err: ErrFileGone} // what is there now is another program's
	}
	m := t.perfMaps.open(pid)
	if !i.forked || !errors.Is(m.err, fs.ErrNotExist) {
		return m
	}
	parent := t.images[i.parent]
	for parent != nil && i.from < parent.from {
		parent = parent.prev
	}
	if parent == nil {
		return m
	}
	if inherited := t.perfMap(i.parent, parent, i.from); inherited.err == nil {
		t.perfMaps.leave(pid)
		return inherited
	}
	return m
}

// FollowPerfMaps looks at the perf maps of the processes that were met in JIT
// code, and keeps what was added to them. Where one was written anew, the
// function of [Table.OnReplaced] is called: what the JIT had at an address
// before may be something else now.
func (t *Table) FollowPerfMaps() { t.perfMaps.follow(t.replaced) }

// FinishPerfMaps does so for the last time, and looks once more for maps that
// were not there when they were first asked for.
func (t *Table) FinishPerfMaps() {
	t.perfMaps.missed = time.Time{}
	t.FollowPerfMaps()
}

// Close closes the mapped files. Those that the table handed out can still be
// read, as long as something leads to them; perf maps cannot.
func (t *Table) Close() error { return errors.Join(t.files.close(), t.perfMaps.close()) }

// String describes the place for messages.
func (l Location) String() string {
	if l.File != nil {
		return fmt.Sprintf("%s+%#x", l.File.Path, l.Offset)
	}
	return fmt.Sprintf("%s %#x", l.Kind, l.Offset)
}
