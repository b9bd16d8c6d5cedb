package process

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/linux/procfs"
)

// Options configures a [Table]. The zero value selects the defaults.
type Options struct {
	// MaxOpenFiles bounds the mapped files that are kept open; 0 means 4096. Above the
	// limit, files that no stack refers to are closed first. Closed files are reopened on
	// reading, if still possible.
	MaxOpenFiles int
	// Sync drains the sideband into the table. It is called after /proc was read for a
	// process. If the process has executed another program in the meantime, the mappings
	// read do not apply to the past. Without it, the table reads the mappings of a process at
	// most once.
	Sync func()
}

// Table tracks the mappings of every process over time. Apart from the files it returns,
// it is not safe for concurrent use.
type Table struct {
	images   map[int]*image // the newest image of each pid
	files    *files
	perfMaps perfMaps
	dumps    jitDumps
	storms   map[int]*storm // processes that mapped code lately, or too often
	late     lateMaps
	looks    limiter
	sync     func()
	replaced func(pid int)
	mapped   func(pid int)
	now      uint64 // time of the newest record
	gone     uint64
}

// Location is the result of resolving an address.
type Location struct {
	Kind Kind
	// File is the mapped file; it is set only for KindFile. A deleted file that is neither an ELF nor
	// a PE file, such as a memfd, is assumed to be JIT code, and is KindAnon. A copy of a file's code
	// in memory without a file is KindFile.
	File *File
	// Offset is the offset in the file for KindFile, and otherwise the address itself.
	Offset uint64
	// MapStart and MapLimit delimit the mapping, and MapOffset is the file offset of
	// MapStart. All are 0 for KindUnknown.
	MapStart, MapLimit, MapOffset uint64
	// PerfMap may name the code; it is set only for KindAnon.
	PerfMap *PerfMap
	// JITDumps may name the code too. It may be nil, and is set only for KindAnon.
	JITDumps *JITDumps
}

// Described reports whether the process has a perf map or a jitdump file, which may name the code.
func (l Location) Described() bool {
	for m := l.PerfMap; m != nil; m = m.next {
		if m.kept.size > 0 {
			return true
		}
	}
	return l.JITDumps != nil
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
	t.perfMaps = perfMaps{followed: map[int]*PerfMap{}, spool: &spool{limit: spoolLimit}, budget: t.files.budget}
	t.dumps = jitDumps{followed: map[int]*JITDumps{}, spool: &spool{limit: spoolLimit}, waits: t.files.budget}
	return t
}

// OnReplaced sets fn to be called whenever executable memory of a running process may have
// been replaced by other code at the same addresses, except by an exec. Equal stacks from
// before and after the call may mean different code. The replaced memory need not have been
// part of any stack.
func (t *Table) OnReplaced(fn func(pid int)) { t.replaced = fn }

// Apply processes a sideband record. Records should come in order of time, as
// [Sideband.Drain] delivers them. A [perfevent.Lost] must be followed by a call of
// [Table.Invalidate].
func (t *Table) Apply(r perfevent.Record) {
	t.now = max(t.now, r.When())
	switch r := r.(type) {
	case perfevent.Mmap2:
		t.mmap(r)
	case perfevent.Comm:
		if r.Exec {
			// The kernel reports an exec after the old address space is gone and before
			// anything of the new program is mapped.
			t.push(r.PID, &image{from: r.Time})
		}
	case perfevent.Fork:
		switch i := t.images[r.PID]; {
		case r.PID <= 0: // outside our PID namespace
		case r.PID != r.PPID:
			t.push(r.PID, t.image(r.PPID).fork(r.PPID, r.Time))
		case i != nil:
			i.threaded = true
		}
	case perfevent.Exit:
		// The remaining threads end after the first one; no record shows which
		// thread is the last.
		if i := t.images[r.PID]; i != nil && (r.TID == r.PID || i.exit != 0) {
			i.exit = r.Time
		}
	case perfevent.Lost:
		t.Invalidate()
	}
}

// Applied is called when there are no more records for now. It opens the files that the
// records name, rather than at the next query.
func (t *Table) Applied() {
	t.calmAll(monotonic.Now())
	t.files.openQueued()
	t.files.nextRound()
}

// image returns the newest image of a pid. A pid not seen before is assumed to have been
// running all along.
func (t *Table) image(pid int) *image {
	i := t.images[pid]
	if i == nil {
		i = &image{base: &base{pid: pid}, threaded: true}
		t.images[pid] = i
	}
	return i
}

// imageAt returns the image that a pid had at the given time, or nil if none is known.
func (t *Table) imageAt(pid int, time uint64) *image {
	i := t.image(pid)
	for i != nil && time < i.from {
		i = i.prev
	}
	return i
}

// push makes i the image of the pid from i.from on.
func (t *Table) push(pid int, i *image) {
	if old := t.images[pid]; old != nil {
		i.prev = old
		if i.parent == 0 {
			i.parent = old.parent
		}
		if i.perfMap == nil {
			t.perfMaps.leave(pid)
		}
		if i.dumps == nil {
			t.dumps.leave(pid)
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
	if i.program == "" && i.base == nil && KindOf(r.Filename, r.Ino) == KindFile {
		i.program = strings.TrimSuffix(r.Filename, " (deleted)") // the kernel maps the program first
	}
	m := procfs.Map{Start: r.Addr, Limit: limit, Offset: r.Pgoff, Maj: r.Maj, Min: r.Min, Ino: r.Ino, Name: r.Filename}
	mapped, dump := t.mapping(m, r.InoGen, r.PID, i.parent)
	mapped.from = r.Time
	if i.has(mapped) {
		if mapped.kind == KindAnon && limit-r.Addr >= minCopied {
			i.looks.again = r.Addr
		}
		return
	}
	i.marked = mark(i.marked, dump)
	fresh := i.base.replaces(mapped)
	if i.insert(mapped) || fresh {
		t.replaced(r.PID)
	}
	t.mapped(r.PID)
}

// mapping converts m and queues its file for opening. dump is the file if it may be a
// jitdump file, which is not code.
func (t *Table) mapping(m procfs.Map, gen uint64, pid, parent int) (mapped mapping, dump *File) {
	mapped = mapping{start: m.Start, limit: m.Limit, off: m.Offset, kind: KindOf(m.Name, m.Ino)}
	if mapped.kind != KindFile {
		return mapped, nil
	}
	key := FileKey{m.Maj, m.Min, m.Ino, gen}
	f := t.files.intern(key, m.Name, origin{pid: pid, parent: parent, start: m.Start, limit: m.Limit})
	if marker := isJITDump(m.Name); marker || isDeleted(m.Name) {
		t.files.openQueued()
		if !f.isProgram() && (marker || isMemfd(m.Name) || f.isOpen()) {
			mapped.kind = KindAnon
			if marker {
				dump = f
			}
			return mapped, dump
		}
	}
	mapped.file = f
	return mapped, nil
}

// vsyscall is the page of legacy system calls on amd64, at the same address in every
// process. Other machines have no user space there.
const vsyscall = 0xffffffffff600000

// Resolve returns the location of a user-space address of process pid at the given time.
// Apply all records up to that time first.
func (t *Table) Resolve(pid int, addr, time uint64) Location {
	if pid <= 0 {
		return Location{Offset: addr}
	}
	if addr >= vsyscall && addr < vsyscall+0x1000 {
		return Location{Kind: KindVsyscall, Offset: addr, MapStart: vsyscall, MapLimit: vsyscall + 0x1000}
	}
	t.files.openQueued()
	var m mapping
	var ok bool
	i := t.load(pid, time, func(i *image) bool {
		m, ok = i.lookup(addr, time)
		return !ok || i.base != nil && i.base.before != nil
	})
	if (!ok && mayHoldCode(addr) || ok && i.unchecked(m)) && t.look(pid, i) {
		m, ok = i.lookup(addr, time)
	}
	if !ok {
		return Location{Offset: addr}
	}
	l := Location{Kind: m.kind, File: m.file, Offset: addr, MapStart: m.start, MapLimit: m.limit, MapOffset: m.off}
	if m.kind == KindAnon {
		l.PerfMap, l.JITDumps = t.perfMap(pid, i, time), t.jitDumpsOf(pid, i)
	}
	if m.file != nil {
		l.Offset = addr - m.start + m.off
		if period := t.files.period.Load(); m.file.lastUsed.Load() != period { // avoids writing to a shared cache line
			m.file.lastUsed.Store(period)
		}
	}
	return l
}

// load returns the image that process pid had at the given time, or nil if none is known.
// While incomplete reports true for the image, load reads the image's base. Reading handles
// records, which may begin a newer image, such as a new child's; load then tries that one.
func (t *Table) load(pid int, time uint64, incomplete func(*image) bool) *image {
	gone := false
	i := t.imageAt(pid, time)
	for loaded := (*image)(nil); i != nil && incomplete(i) && i != loaded && i.unread(); i = t.imageAt(pid, time) {
		loaded, gone = i, t.read(pid, i)
	}
	if gone {
		t.gone++
	}
	return i
}

// read reads the base of i, an image of process pid, from /proc: through the process that had
// it first or, if that process is gone or runs another program, through pid. The order
// matters for short-lived children, which share their parent's image only between fork and
// exec. It reports whether the process is gone.
func (t *Table) read(pid int, i *image) (gone bool) {
	i.failed = true
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
		if errors.Is(err, safeopen.ErrNoAnswer) {
			i.failed = false // it may respond later
			return false
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
			mapped, dump := t.mapping(m, 0, candidate, parent)
			b.maps, b.marked = b.maps.With(mapped), mark(b.marked, dump)
		}
		t.files.openQueued()
		b.read, b.before = true, nil
		return false
	}
	return exited || i.exit != 0
}

// runs reports whether the current image of process pid has base b.
func (t *Table) runs(pid int, b *base) bool {
	i := t.images[pid]
	return i != nil && i.base == b
}

// errNoMaps is returned for a kernel thread, and for a process that is exiting or in the
// middle of an exec.
var errNoMaps = errors.New("no executable mappings")

// Maps returns the current executable mappings of process pid from /proc. Reading them
// may block on threads that change them, which in turn may wait for a file system that
// does not respond. The error then wraps [safeopen.ErrNoAnswer].
func (t *Table) Maps(pid int) ([]procfs.Map, error) {
	return safeopen.Ask(t.files.budget, procRoot(pid), func(*safeopen.Request) ([]procfs.Map, error) { return ReadMaps(pid) })
}

// baseMaps is like [Table.Maps] for the image of b. A late result is kept: it stays valid
// while the process runs the same image, since records report later mappings.
func (t *Table) baseMaps(pid int, b *base) ([]procfs.Map, error) {
	if maps, ok := t.late.take(b); ok {
		return maps, nil
	}
	return safeopen.AskLate(t.files.budget, procRoot(pid), func(*safeopen.Request) ([]procfs.Map, error) { return ReadMaps(pid) },
		func(maps []procfs.Map, err error) {
			if err == nil {
				t.late.put(b, maps)
			}
		})
}

// Unread reports whether the table does not know the initial mappings of process pid
// because /proc has not responded in time. It may respond later.
func (t *Table) Unread(pid int) bool {
	i := t.images[pid]
	return i != nil && i.unread()
}

// Program returns the path of the program that process pid executed at the given time, as the process
// sees it, or "" if it is unknown: if the process exited early, or since before the table got its first
// record. Apply all records up to that time first.
func (t *Table) Program(pid int, time uint64) string {
	i := t.imageAt(pid, time)
	if i == nil {
		return ""
	}
	if i.program == "" && t.images[pid] == i {
		path, err := procfs.Executable(pid)
		if t.sync != nil {
			t.sync()
		}
		// Otherwise, it may have executed another program, or another process may have its ID.
		if err == nil && t.images[pid] == i && i.exit == 0 {
			i.program = path
		}
	}
	return i.program
}

// ReadMaps is like [Table.Maps] but may block.
func ReadMaps(pid int) ([]procfs.Map, error) { return readMapsBy(procfs.Task.Maps, pid) }

// readMapsBy returns the mappings that read finds for process pid.
func readMapsBy(read func(procfs.Task) ([]procfs.Map, error), pid int) ([]procfs.Map, error) {
	maps, err := read(procfs.Process(pid))
	if err == nil && len(maps) == 0 {
		err = errNoMaps
	}
	name := belowRoot(pid)
	for i := range maps {
		maps[i].Name = name(maps[i].Name)
	}
	return maps, err
}

// Invalidate reports that records were lost, so that known mappings of running processes may
// be stale. The table reads each process again at the next lookup in it. For processes that
// are gone by then, it keeps the known state.
func (t *Table) Invalidate() {
	for pid, i := range t.images {
		t.invalidate(pid, i)
	}
}

// invalidate invalidates process pid, whose image is i.
func (t *Table) invalidate(pid int, i *image) {
	// An empty image has nothing to lose.
	if i.base != nil && !i.base.read && i.live.Len() == 0 {
		i.failed = false
		return
	}
	t.push(pid, &image{
		from: t.now, exit: i.exit, threaded: true, parent: i.parent, forked: i.forked,
		base: &base{pid: pid, before: i.known()}, perfMap: i.perfMap, dumps: i.dumps, inherited: i.inherited,
	})
	if i.dumps != nil {
		i.dumps.considered = -1
	}
}

// Forget drops processes that exited and mappings that were displaced before the given time,
// which must not be after the oldest stack that may still arrive.
func (t *Table) Forget(before uint64) {
	for pid, i := range t.images {
		if i.exit != 0 && i.exit < before {
			if !i.threaded || procfs.Survivor(pid) == 0 {
				delete(t.images, pid)
				t.perfMaps.leave(pid)
				t.dumps.leave(pid)
				continue
			}
			i.exit = monotonic.Now() // check again when stacks from now are too old to arrive
		}
		i.forget(before)
	}
	t.files.sweep(t.eachFile)
}

// NextPeriod starts a new period. Stacks from before the last two periods are no longer
// needed, so files that only those refer to may be dropped. Without calls of NextPeriod,
// all files that stacks refer to are kept.
func (t *Table) NextPeriod() {
	t.files.period.Add(1)
	t.dumps.nextPeriod()
}

// eachFile calls fn with the file of each mapping.
func (t *Table) eachFile(fn func(*File)) {
	for _, newest := range t.images {
		for i := newest; i != nil; i = i.prev {
			i.eachFile(fn)
		}
	}
}

func (i *image) eachFile(fn func(*File)) {
	lists, marked := []iter.Seq[mapping]{i.live.All(), slices.Values(i.past)}, i.marked
	if i.base != nil {
		lists, marked = append(lists, i.base.maps.All()), slices.Concat(marked, i.base.marked)
		if i.base.before != nil {
			i.base.before.eachFile(fn)
		}
	}
	for _, maps := range lists {
		for m := range maps {
			if m.file != nil {
				fn(m.file)
			}
		}
	}
	for _, f := range marked {
		fn(f)
	}
}

// Gone returns the number of processes that exited or executed another program before
// their mappings could be read.
func (t *Table) Gone() uint64 { return t.gone }

// perfMap returns the perf map of process pid at the given time, when it ran i. If the
// process has none, it returns its parent's, because a forked child runs its parent's
// code and most JITs do not write another map for it.
func (t *Table) perfMap(pid int, i *image, time uint64) *PerfMap {
	if i.perfMap == nil {
		t.findPerfMap(pid, i)
	}
	return i.perfMap.at(time)
}

// findPerfMap sets the perf map of i, and of the ancestors that it visits.
func (t *Table) findPerfMap(pid int, i *image) {
	type child struct {
		pid int
		*image
		parent *image
	}
	var without []child             // children without their own map, i first
	for a := i; a.perfMap == nil; { // also ends in a cycle of parents
		if t.images[pid] != a {
			a.perfMap = &PerfMap{err: ErrFileGone} // the map there now belongs to another program
			break
		}
		a.perfMap = t.perfMaps.open(pid)
		if !a.forked || !errors.Is(a.perfMap.err, fs.ErrNotExist) {
			break
		}
		parent := t.imageAtFork(a)
		if parent == nil {
			break
		}
		without = append(without, child{pid, a, parent})
		pid, a = a.parent, parent
	}
	for _, c := range slices.Backward(without) {
		if inherited := c.parent.perfMap.at(c.from); inherited.err == nil {
			t.perfMaps.leave(c.pid)
			c.perfMap = inherited
		}
	}
}

// imageAtFork returns the image that the parent of i had when it forked, or nil if it is
// not known.
func (t *Table) imageAtFork(i *image) *image {
	parent := t.images[i.parent]
	for parent != nil && i.from < parent.from {
		parent = parent.prev
	}
	return parent
}

// FollowJIT reads the data appended to the perf maps and jitdump files of processes that were
// sampled in JIT code. It calls the function of [Table.OnReplaced] if the JIT may have placed
// other code at the same addresses: if a map was rewritten, or a jitdump file grew, and
// regularly for processes with a jitdump file, since a JIT may write it late: at first every
// second, then less often.
func (t *Table) FollowJIT() {
	t.perfMaps.follow(t.replaced)
	t.dumps.follow(monotonic.Now(), dumpStep, dumpStep/filePart, t.replaced)
}

// FinishJIT calls FollowJIT for the last time. It looks again for maps that did not exist at
// first, and reads all of the jitdump files.
func (t *Table) FinishJIT() {
	t.perfMaps.missed = time.Time{}
	t.FollowJIT()
	t.dumps.follow(monotonic.Now(), dumpFinal, dumpFinal, t.replaced)
}

// Close closes the mapped files. Files that the table returned remain readable as long as
// they are reachable; perf maps and jitdump files do not.
func (t *Table) Close() error {
	t.perfMaps.close()
	t.dumps.close()
	return errors.Join(t.files.close(), t.perfMaps.spool.close(), t.dumps.spool.close())
}

// String describes the location for messages.
func (l Location) String() string {
	if l.File != nil {
		return fmt.Sprintf("%s+%#x", l.File.Path, l.Offset)
	}
	return fmt.Sprintf("%s %#x", l.Kind, l.Offset)
}
