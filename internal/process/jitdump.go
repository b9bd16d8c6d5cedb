package process

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/symbols/jitdump"
)

// JITDumps are the jitdump files of a program, see package jitdump. The program maps such a
// file as executable to announce it to profilers. So the file is found in any directory.
type JITDumps struct {
	pid, nspid int
	uid        uint32 // of the process
	unknown    error  // why nspid and uid are not known

	*dumpFiles
	considered int // mappings that were considered, -1 to consider them again
	// epoch is when the process's last epoch began, and firstEpoch when its first epoch in
	// the table's period began (CLOCK_MONOTONIC ns); see [JITDumps.due].
	epoch, firstEpoch uint64
	grew              bool // since epoch

	// inherited holds the ancestors' code from before they forked, starting with the parent.
	// forks is the number of ancestors, including those whose code is not kept.
	inherited []inheritedDumps
	forks     int
}

// dumpFiles are the files of a program, without its parent's.
type dumpFiles struct{ files []*dumpFile }

// inheritedDumps are the files of an ancestor, up to the fork at time until.
type inheritedDumps struct {
	*dumpFiles
	until uint64 // CLOCK_MONOTONIC ns
}

// dumpFile is a followed jitdump file, with a copy of the records that names need.
type dumpFile struct {
	file  *File
	scan  jitdump.Scanner
	kept  spooled
	size  int64         // of the file at the last look
	mtime unix.Timespec // likewise
	more  bool          // not read to that size
	last  bool          // the program has ended
	fatal bool          // err is permanent
	err   error
}

// JITTables is a snapshot of the contents of [JITDumps].
type JITTables struct {
	Tables []jitdump.Table
	// Incomplete is why parts are missing, or nil.
	Incomplete error
}

const (
	// maxDumps is the maximum number of jitdump files of a program. A runtime writes one.
	maxDumps = 8
	// maxForks is the maximum number of ancestors whose code is kept.
	maxForks = 32
	// maxMarked is the maximum number of mapped files that may be jitdump files, per image.
	maxMarked = 1000
	// These limit the bytes of jitdump files to read: dumpStep per call of [Table.FollowJIT],
	// dumpLast of a program that has ended, and dumpFinal in [Table.FinishJIT]. Of dumpStep,
	// a process gets at most 1/filePart.
	dumpStep  = 16 << 20
	dumpLast  = 64 << 20
	dumpFinal = 256 << 20
	filePart  = 4
	// maxKept limits the bytes kept of a file, so that a process that writes without end
	// leaves room for others.
	maxKept = 64 << 20
	// dumpEpoch is the initial length of an epoch, see [JITDumps.due].
	dumpEpoch = time.Second
	// dumpEpochs slows later epochs down: an epoch lasts at least 1/dumpEpochs of the time
	// since the first one.
	dumpEpochs = 64
	// growthFactor is how much shorter an epoch is if a file grew.
	growthFactor = 10
)

// isJITDump reports whether a mapped file has the name of a jitdump file. perf uses the same
// convention; the contents are checked when the file is read.
func isJITDump(name string) bool {
	base := path.Base(strings.TrimSuffix(name, deletedSuffix))
	return strings.HasPrefix(base, "jit-") && strings.HasSuffix(base, ".dump")
}

// Tables returns a snapshot of the records read so far. Other goroutines may read it.
func (d *JITDumps) Tables() JITTables {
	var t JITTables
	if d == nil {
		return t
	}
	var errs []error
	for _, from := range slices.Concat([]inheritedDumps{{d.dumpFiles, 0}}, d.inherited) {
		for _, f := range from.files {
			errs = append(errs, f.incomplete())
			if f.kept.size > 0 {
				kept := f.kept.clone()
				t.Tables = append(t.Tables, jitdump.Table{
					Reader: &kept, Size: kept.size, Order: f.scan.Order(), LineBias: f.scan.LineBias(), Until: from.until,
				})
			}
		}
	}
	if d.forks > maxForks {
		errs = append(errs, fmt.Errorf("code from before the last %d forks is not kept", maxForks))
	}
	t.Incomplete = errors.Join(errs...)
	return t
}

// incomplete returns why parts of the file are missing, or nil.
func (f *dumpFile) incomplete() error {
	err := f.err
	if n := f.scan.Malformed; err == nil && n > 0 {
		err = errors.New(plain.Count(n, "malformed record"))
	}
	if n := f.scan.MalformedLines; err == nil && n > 0 {
		err = errors.New(plain.Count(n, "malformed line table"))
	}
	if n := f.scan.StrayLines; err == nil && n > 0 {
		err = errors.New(plain.Count(n, "misplaced line"))
	}
	switch rest := f.size - f.scan.Offset(); {
	case err != nil:
	case f.more:
		err = fmt.Errorf("only its first %d bytes were read", f.scan.Offset())
	case f.last && rest > 0:
		err = fmt.Errorf("its last record is longer than the rest of the file, %d bytes", rest)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.file.Path, err)
	}
	return nil
}

// update reads the data appended to the file, but not much more than budget bytes. It reports
// whether the file changed.
func (f *dumpFile) update(waits *safeopen.Budget, nspid int, uid uint32, budget int64) (grew bool) {
	if f.fatal {
		return false
	}
	o, err := f.file.acquire(waits)
	if err != nil {
		f.err = err
		return false
	}
	in := o.file.With(waits)
	st, err := in.Now()
	if err != nil {
		f.err = err
		return false
	}
	grew = st.Size != f.size || st.Mtim != f.mtime
	if !f.more && f.err == nil && !grew {
		return false
	}
	f.size, f.mtime, f.err = st.Size, st.Mtim, nil
	if st.Uid != uid && st.Uid != 0 {
		f.fail(ownerError(&st, uid))
		return grew
	}
	for left := budget; ; {
		part := min(left, dumpStep/filePart) // limits the memory for records
		f.err = f.read(in, nspid, st.Size, part)
		if left -= part; f.err != nil || !f.more || left <= 0 {
			return grew
		}
	}
}

// read reads at most budget bytes, up to size, the file's current size.
func (f *dumpFile) read(in *safeopen.File, nspid int, size, budget int64) error {
	kept, more, err := f.scan.Scan(in, size, budget)
	if errors.Is(err, jitdump.ErrRewritten) || errors.Is(err, jitdump.ErrTruncated) {
		if f.last {
			f.size = f.scan.Offset() // the rest belongs to the next program
			return nil
		}
		before := f.scan
		f.scan = jitdump.Scanner{Malformed: before.Malformed, MalformedLines: before.MalformedLines, StrayLines: before.StrayLines} // timestamps separate old code from new
		kept, more, err = f.scan.Scan(in, size, budget)
		switch is, was := f.scan.Order(), before.Order(); {
		case is == nil && err == nil: // no header yet
			f.scan = before
			return nil
		case was != nil && is != was:
			f.scan = before
			f.fail(errors.New("rewritten in another form"))
			return f.err
		}
	}
	f.more = more
	if pid := f.scan.PID(); f.scan.Order() != nil && pid != nspid {
		f.fail(fmt.Errorf("written by process %d", pid))
		return f.err
	}
	if format := (*jitdump.FormatError)(nil); errors.As(err, &format) {
		f.fatal = true
	}
	if len(kept) == 0 {
		return err
	}
	if f.kept.size > maxKept {
		f.fail(fmt.Errorf("names and lines exceed %d bytes", maxKept))
		return f.err
	}
	if full := f.kept.append(bytes.NewReader(kept), int64(len(kept))); full != nil {
		f.fail(full)
		return full
	}
	return err
}

// fail stops following the file.
func (f *dumpFile) fail(err error) { f.err, f.fatal, f.more = err, true, false }

// ownerError is the error for a file that another user may have written.
func ownerError(st *unix.Stat_t, uid uint32) error {
	return fmt.Errorf("owned by user %d, not by the process's user %d or root", st.Uid, uid)
}

// jitDumps follows the jitdump files of processes that were sampled in JIT code.
type jitDumps struct {
	followed map[int]*JITDumps // of the newest program of each process, by pid
	spool    *spool
	waits    *safeopen.Budget // for the files
}

// add starts to follow the mapped files that d does not have yet.
func (j *jitDumps) add(d *JITDumps, marked []*File) {
	for _, file := range marked {
		known := slices.ContainsFunc(d.files, func(f *dumpFile) bool { return f.file.sameInode(file) })
		if known || len(d.files) == maxDumps {
			continue
		}
		f := &dumpFile{file: file, kept: spooled{in: j.spool}}
		if d.unknown != nil {
			f.fail(d.unknown)
		}
		d.files = append(d.files, f)
	}
	budget := int64(dumpStep / filePart)
	j.update(d, &budget)
}

// sameInode reports whether two files have the same inode.
func (f *File) sameInode(o *File) bool {
	return f.Key.Maj == o.Key.Maj && f.Key.Min == o.Key.Min && f.Key.Ino == o.Key.Ino
}

// update reads up to budget bytes of the files of d, and subtracts the number of bytes read
// or skipped from budget. It reports whether one of them grew.
func (j *jitDumps) update(d *JITDumps, budget *int64) (grew bool) {
	for _, f := range d.files {
		before := f.scan.Offset()
		if f.update(j.waits, d.nspid, d.uid, *budget) {
			grew = true
		}
		*budget -= max(f.scan.Offset()-before, 0)
	}
	return grew
}

// live reports whether d may get more code.
func (d *JITDumps) live() bool {
	return slices.ContainsFunc(d.files, func(f *dumpFile) bool { return !f.fatal })
}

// follow reads up to budget bytes of all files, and up to each bytes per process. It calls fn
// for each process that begins a new epoch, see [JITDumps.due].
func (j *jitDumps) follow(now uint64, budget, each int64, fn func(pid int)) {
	for pid, d := range j.followed { // in random order, so that each gets its turn
		part := max(min(budget, each), 0)
		left := part
		d.grew = j.update(d, &left) || d.grew
		budget -= part - left
		if d.live() && d.due(now) {
			fn(pid)
		}
	}
}

// due reports whether the process needs a new epoch, and if so begins it. Within an epoch,
// equal stacks in JIT code are counted as one, even if other code has replaced the code at
// their addresses. So an epoch ends soon after a file grew, and in any case after a while,
// because runtimes may write records late, when a buffer is full. Each epoch costs memory, so
// they get longer.
func (d *JITDumps) due(now uint64) bool {
	if d.firstEpoch == 0 {
		d.firstEpoch = now
	}
	length := max(uint64(dumpEpoch), (now-d.firstEpoch)/dumpEpochs)
	if d.grew {
		length /= growthFactor
	}
	if d.epoch != 0 && now-d.epoch < length {
		return false
	}
	d.epoch, d.grew = now, false
	return true
}

// nextPeriod begins with short epochs again.
func (j *jitDumps) nextPeriod() {
	for _, d := range j.followed {
		d.firstEpoch = 0
	}
}

// leave reads the rest of the files of process pid, which has ended or executed another
// program, and stops following them.
func (j *jitDumps) leave(pid int) {
	if d := j.followed[pid]; d != nil {
		delete(j.followed, pid)
		for _, f := range d.files {
			f.last = true
		}
		budget := int64(dumpLast)
		j.update(d, &budget)
	}
}

// jitDumpsOf returns the jitdump files of process pid, when it ran i, or nil if it has none.
// A forked child also has its parent's.
func (t *Table) jitDumpsOf(pid int, i *image) *JITDumps {
	type member struct {
		pid int
		*image
	}
	line := []member{{pid, i}} // i and its ancestors, up to one that has inherited
	whole := false
	for a := i; ; {
		var parent *image
		if a.forked && !a.inherited {
			parent = t.imageAtFork(a)
		}
		if whole = parent == nil; whole || len(line) > maxForks {
			break
		}
		line = append(line, member{a.parent, parent})
		a = parent
	}
	for k, m := range slices.Backward(line) {
		if k+1 < len(line) {
			m.inherit(m.pid, line[k+1].dumps)
		}
		// If line is not whole, only i has enough ancestors. The others inherit again when
		// they are looked up.
		m.inherited = whole || k == 0
		t.followDumps(m.pid, m.image)
	}
	if d := i.dumps; d != nil && !whole {
		d.forks = max(d.forks, maxForks+1)
	}
	return i.dumps
}

// followDumps starts to follow the files that process pid mapped since the last call, if it
// still runs i.
func (t *Table) followDumps(pid int, i *image) {
	n := len(i.marked)
	if !i.forked && i.base != nil { // a child's base is its parent's
		n += len(i.base.marked)
	}
	if i.dumps == nil && n == 0 || i.dumps != nil && i.dumps.considered == n || t.images[pid] != i {
		return
	}
	if i.dumps == nil {
		i.dumps = &JITDumps{pid: pid, dumpFiles: new(dumpFiles)}
	}
	d := i.dumps
	if t.dumps.followed[pid] != d {
		t.dumps.followed[pid] = d
		status, err := procfs.Process(pid).Status()
		d.nspid, d.uid, d.unknown = cmp.Or(status.NSPID, pid), status.UIDs[3], err
	}
	d.considered = n
	marked := i.marked
	if !i.forked && i.base != nil {
		marked = slices.Concat(i.base.marked, marked)
	}
	t.dumps.add(d, marked)
}

// inherit gives i, the image of process pid, the files of its parent, which may be nil.
func (i *image) inherit(pid int, parent *JITDumps) {
	if parent == nil {
		return
	}
	if i.dumps == nil {
		i.dumps = &JITDumps{pid: pid, dumpFiles: new(dumpFiles)}
	}
	inherited := slices.Concat([]inheritedDumps{{parent.dumpFiles, i.from}}, parent.inherited)
	i.dumps.inherited, i.dumps.forks = inherited[:min(len(inherited), maxForks)], parent.forks+1
}

// mark appends file to marked, unless it is nil or there are too many.
func mark(marked []*File, file *File) []*File {
	if file == nil || len(marked) >= maxMarked {
		return marked
	}
	return append(marked, file)
}

// close stops following all files.
func (j *jitDumps) close() {
	for pid := range j.followed {
		j.leave(pid)
	}
}
