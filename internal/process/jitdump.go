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

	"fulgur/internal/files/answer"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/symbols/jitdump"
)

// JITDumps are the jitdump files of a program, see package jitdump. The writer of such a
// file maps it as executable, as a marker for profilers. So the files are found by
// mappings, whatever directory they are in.
type JITDumps struct {
	pid, nspid int
	uid        uint32 // of the process
	unknown    error  // why nspid and uid are not known

	*dumpFiles
	asked int // mappings that were considered, -1 to consider them again
	// raised is when the process last got a new epoch, and began when its first one of the
	// table's period began (CLOCK_MONOTONIC ns); see [JITDumps.due].
	raised, began uint64
	grew          bool // since raised

	// inherited holds the code from before forks, that of the parent first. forks is their
	// number, some of which may not be kept.
	inherited []inheritedDumps
	forks     int
}

// dumpFiles are the files of a program, without those of its parent.
type dumpFiles struct{ files []*dumpFile }

// inheritedDumps are the files of an ancestor, up to the fork at time until.
type inheritedDumps struct {
	*dumpFiles
	until uint64 // CLOCK_MONOTONIC ns
}

// dumpFile is a jitdump file that is followed, and what was kept of it.
type dumpFile struct {
	file  *File
	scan  jitdump.Scanner
	kept  spooled
	size  int64         // of the file at the last look
	mtime unix.Timespec // likewise
	more  bool          // not read to that size
	last  bool          // the program has ended
	fatal bool          // err is for good
	err   error
}

// JITTables are what was read of [JITDumps] at some time.
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
	// maxMarked is the maximum number of their mappings.
	maxMarked = 1000
	// dumpStep, dumpLast and dumpRest are how many bytes of jitdump files are read at once
	// while samples are taken, when a program has ended, and when nothing follows. While
	// samples are taken, a file gets at most a part of that.
	dumpStep = 16 << 20
	dumpLast = 64 << 20
	dumpRest = 256 << 20
	filePart = 4
	// maxKept is how many bytes are kept of a file, so that a process that writes without end
	// leaves room for others.
	maxKept = 64 << 20
	// dumpEpoch is how long an epoch lasts in the beginning, see [JITDumps.due].
	dumpEpoch = time.Second
	// dumpEpochs limits the number of epochs in a long time.
	dumpEpochs = 64
	// dumpHurry is how much shorter an epoch is if a file grew.
	dumpHurry = 10
)

// isJITDump reports whether a mapped file has the name of a jitdump file. perf uses the same
// convention; the contents are checked when the file is read.
func isJITDump(name string) bool {
	base := path.Base(strings.TrimSuffix(name, deletedSuffix))
	return strings.HasPrefix(base, "jit-") && strings.HasSuffix(base, ".dump")
}

// Tables returns what was read so far. It does not change later, and other goroutines may
// read it.
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
					Reader: &kept, Size: kept.size, Order: f.scan.Order(), Raised: f.scan.Raised(), Until: from.until,
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

// update reads what was appended to the file, but not much more than budget bytes. It
// reports whether the file changed.
func (f *dumpFile) update(patience *answer.Patience, nspid int, uid uint32, budget int64) (grew bool) {
	if f.fatal {
		return false
	}
	o, err := f.file.acquire(patience)
	if err != nil {
		f.err = err
		return false
	}
	in := o.file.With(patience)
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
		part := min(left, dumpStep/filePart) // limits the memory for what is kept
		f.err = f.read(in, nspid, st.Size, part)
		if left -= part; f.err != nil || !f.more || left <= 0 {
			return grew
		}
	}
}

// read reads up to size, the file's current size.
func (f *dumpFile) read(in *safeopen.File, nspid int, size, budget int64) error {
	kept, more, err := f.scan.Scan(in, size, budget)
	if errors.Is(err, jitdump.ErrRewritten) || errors.Is(err, jitdump.ErrTruncated) {
		if f.last {
			f.size = f.scan.Offset() // the rest is of the next program
			return nil
		}
		before := f.scan
		f.scan = jitdump.Scanner{Malformed: before.Malformed, MalformedLines: before.MalformedLines} // times tell old code from new
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
		f.fail(fmt.Errorf("names and lines of more than %d bytes", maxKept))
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

// ownerError is the error for a file that someone else can have written.
func ownerError(st *unix.Stat_t, uid uint32) error {
	return fmt.Errorf("owned by user %d, neither by the process's user %d nor by root", st.Uid, uid)
}

// jitDumps follows the jitdump files of processes that were sampled in JIT code.
type jitDumps struct {
	followed map[int]*JITDumps // of the newest program of each process, by pid
	spool    *spool
	patience *answer.Patience
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

// update reads up to budget bytes of the files of d, and subtracts what it read or skipped.
// It reports whether one of them grew.
func (j *jitDumps) update(d *JITDumps, budget *int64) (grew bool) {
	for _, f := range d.files {
		before := f.scan.Offset()
		if f.update(j.patience, d.nspid, d.uid, *budget) {
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

// follow reads all files, budget bytes in total, and calls fn for each process whose stacks may
// have other meanings from now on. A file gets at most each bytes.
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

// due reports whether the process needs a new epoch, and records that it begins. In an
// epoch, a stack in JIT code stands for equal ones, whatever code is at its addresses by
// then. So an epoch ends when a file grew, or after a while, because runtimes may write
// records late, when a buffer is full. Each epoch costs memory, so they get longer.
func (d *JITDumps) due(now uint64) bool {
	if d.began == 0 {
		d.began = now
	}
	length := max(uint64(dumpEpoch), (now-d.began)/dumpEpochs)
	if d.grew {
		length /= dumpHurry
	}
	if d.raised != 0 && now-d.raised < length {
		return false
	}
	d.raised, d.grew = now, false
	return true
}

// nextPeriod begins with short epochs again.
func (j *jitDumps) nextPeriod() {
	for _, d := range j.followed {
		d.began = 0
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
// A forked child also has the ones of its parent.
func (t *Table) jitDumpsOf(pid int, i *image) *JITDumps { return t.jitDumpsWithin(pid, i, maxForks) }

// jitDumpsWithin is jitDumpsOf for ancestors that at most this many forks separate from i.
func (t *Table) jitDumpsWithin(pid int, i *image, forks int) *JITDumps {
	if i.forked && !i.inherited && forks > 0 {
		i.inherited = true
		t.inheritDumps(pid, i, forks)
	}
	n := len(i.marked)
	if !i.forked && i.base != nil { // a child's base is its parent's
		n += len(i.base.marked)
	}
	if i.dumps == nil && n == 0 || i.dumps != nil && i.dumps.asked == n || t.images[pid] != i {
		return i.dumps
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
	d.asked = n
	marked := i.marked
	if !i.forked && i.base != nil {
		marked = slices.Concat(i.base.marked, marked)
	}
	t.dumps.add(d, marked)
	return d
}

// inheritDumps gives i, the image of a forked child, the code of its ancestors that at most
// this many forks separate from it.
func (t *Table) inheritDumps(pid int, i *image, forks int) {
	parent := t.imageAtFork(i)
	if parent == nil {
		return
	}
	if of := t.jitDumpsWithin(i.parent, parent, forks-1); of != nil {
		if i.dumps == nil {
			i.dumps = &JITDumps{pid: pid, dumpFiles: new(dumpFiles)}
		}
		i.dumps.inherit(of, i.from)
	}
}

// inherit gives d the files of its parent, which forked it at a time.
func (d *JITDumps) inherit(parent *JITDumps, at uint64) {
	inherited := slices.Concat([]inheritedDumps{{parent.dumpFiles, at}}, parent.inherited)
	d.inherited, d.forks = inherited[:min(len(inherited), maxForks)], parent.forks+1
}

// mark appends file to marked, unless it is nil or there are too many.
func mark(marked []*File, file *File) []*File {
	if file == nil || len(marked) >= maxMarked {
		return marked
	}
	return append(marked, file)
}

// close stops following.
func (j *jitDumps) close() {
	for pid := range j.followed {
		j.leave(pid)
	}
}
