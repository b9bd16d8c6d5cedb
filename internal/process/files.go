package process

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
)

// files interns mapped files, and bounds how many of them are open.
type files struct {
	limit int
	// byInode holds the files by key without the generation. A key nearly always has one
	// file; it has more after an inode number was reused or a file was rewritten.
	byInode map[FileKey][]*File
	count   int // files in byInode
	// The time of the last sweep and how many files it left.
	swept   int
	sweptAt time.Time
	period  atomic.Uint64
	// budget limits the waits of the goroutine that interns files.
	budget *safeopen.Budget
	queue  []queued
	// round counts the rounds of records; see [File.rewritten].
	round uint64

	mu   sync.Mutex
	open []*File // in the order in which they were opened
}

// queued is a file to be opened from src; fresh means for the first time.
type queued struct {
	file  *File
	src   origin
	fresh bool
}

// newFiles returns an empty set that keeps up to limit files open, or half of the
// process's limit of open files if that is lower.
func newFiles(limit int) *files {
	var rlimit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &rlimit); err == nil && rlimit.Cur/2 < uint64(limit) {
		limit = int(rlimit.Cur / 2)
	}
	c := &files{limit: limit, byInode: map[FileKey][]*File{}, sweptAt: time.Now(), budget: safeopen.NewBudget()}
	c.period.Store(1)
	c.nextRound()
	return c
}

// nextRound begins a new round of records.
func (c *files) nextRound() { c.round++ }

// used reports whether a stack of this period or the two before it refers to f.
func (c *files) used(f *File) bool {
	last := f.lastUsed.Load()
	return last != 0 && last+2 >= c.period.Load()
}

// intern returns the file of the mapping called name. If it is new or could not be opened
// so far, the next [files.openQueued] opens it through src. A file rewritten in place
// since the last mapping counts as new.
func (c *files) intern(key FileKey, name string, src origin) *File {
	inode := FileKey{Maj: key.Maj, Min: key.Min, Ino: key.Ino}
	path := strings.TrimSuffix(name, deletedSuffix)
	for _, f := range c.byInode[inode] {
		if f.is(key, path) && !f.rewritten() {
			if !f.queued && f.seen(src) {
				f.queued = true
				c.queue = append(c.queue, queued{file: f, src: src})
			}
			return f
		}
	}
	f := &File{Key: key, Path: strings.Clone(path), cache: c, src: src, queued: true}
	c.byInode[inode] = append(c.byInode[inode], f)
	c.count++
	c.queue = append(c.queue, queued{f, src, true})
	return f
}

// openQueued opens the files that were interned since the last call, before the programs that
// map them end. budget limits its waits; a file that takes longer is opened later, or
// never. Until openQueued returns, no other goroutine sees the files.
func (c *files) openQueued() {
	queue := c.queue
	c.queue = nil
	for _, q := range queue {
		q.file.queued = false
		o, err := q.file.openFrom(c.budget, q.src)
		if q.fresh && err == nil && q.file.Key.Gen == 0 {
			q.file.Key.Gen = o.gen
		}
	}
}

// is reports whether a mapping with the given key and path maps this file. /proc/PID/maps
// does not show the generation. Without it, an equal inode number means the same file only
// while our descriptor keeps the number from being reused; otherwise the path decides.
func (f *File) is(key FileKey, path string) bool {
	if f.Key.Gen != 0 && key.Gen != 0 {
		return f.Key.Gen == key.Gen
	}
	return f.queued || f.isOpen() || f.Path == path
}

// opened records that f holds a descriptor. If there are too many, it closes the file
// that was opened first, preferably one that no stack refers to.
func (c *files) opened(f *File) {
	c.mu.Lock()
	c.open = append(c.open, f)
	var victim *File
	if len(c.open) > c.limit {
		i := slices.IndexFunc(c.open, func(f *File) bool { return !c.used(f) })
		if i < 0 || c.open[i] == f {
			i = 0
		}
		victim = c.open[i]
		c.open = slices.Delete(c.open, i, i+1)
	}
	c.mu.Unlock()
	if victim != nil {
		_ = victim.close() // read-only
	}
}

// sweepEvery limits how long unused files stay open, because they keep deleted files on disk
// and file systems mounted. If a program runs again within that time, its files are still
// open.
const sweepEvery = time.Minute

// sweep drops the files that no recent stack refers to and that live does not mark. It does
// nothing until the number of files has doubled or [sweepEvery] has passed.
func (c *files) sweep(live func(mark func(*File))) {
	if c.count < 2*c.swept+1024 && time.Since(c.sweptAt) < sweepEvery {
		return
	}
	keep := map[*File]bool{}
	live(func(f *File) { keep[f] = true })
	drop := func(f *File) bool { return !keep[f] && !c.used(f) }

	c.count = 0
	for inode, fs := range c.byInode {
		fs = slices.DeleteFunc(fs, func(f *File) bool {
			if drop(f) {
				_ = f.close() // read-only
				return true
			}
			return false
		})
		if len(fs) == 0 {
			delete(c.byInode, inode)
			continue
		}
		c.byInode[inode] = fs
		c.count += len(fs)
	}
	c.swept, c.sweptAt = c.count, time.Now()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = slices.DeleteFunc(c.open, drop)
}

// close closes all files. Reading one opens it again.
func (c *files) close() error {
	c.mu.Lock()
	open := c.open
	c.open = nil
	c.mu.Unlock()
	var err error
	for _, f := range open {
		err = errors.Join(err, f.close())
	}
	return err
}
