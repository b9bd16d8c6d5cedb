package process

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/answer"
)

// files interns mapped files, and bounds how many are open.
type files struct {
	limit int
	// byInode holds the files by their key without the generation: almost
	// always one, more after an inode was used again or written anew.
	byInode map[FileKey][]*File
	count   int // files in byInode
	// The last sweep: how many files it left, and when.
	swept   int
	sweptAt time.Time
	period  atomic.Uint64
	// patience is that of the goroutine that interns files.
	patience *answer.Patience
	queue    []queued

	mu   sync.Mutex
	open []*File // in order of opening
}

// queued is a file that is to be opened from src, for the first time if it is fresh.
type queued struct {
	file  *File
	src   source
	fresh bool
}

// newFiles returns an empty set of files that keeps limit of them open, or
// half of what the process may open if that is less.
func newFiles(limit int) *files {
	var rlimit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &rlimit); err == nil && rlimit.Cur/2 < uint64(limit) {
		limit = int(rlimit.Cur / 2)
	}
	c := &files{limit: limit, byInode: map[FileKey][]*File{}, sweptAt: time.Now(), patience: answer.NewPatience()}
	c.period.Store(1)
	return c
}

// used reports whether a stack of this period or of the two before it has met f.
func (c *files) used(f *File) bool {
	met := f.met.Load()
	return met != 0 && met+2 >= c.period.Load()
}

// intern returns the file of a mapping called name. If it is new, or could not be
// opened so far, the next [files.openQueued] opens it through src. One that was written
// in place since the last mapping is a new one.
func (c *files) intern(key FileKey, name string, src source) *File {
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

// openQueued opens the files that were interned since the last call, all by one
// goroutine as far as they answer: the program that maps them may be gone soon. It
// waits no longer than the patience lets it; a file that takes longer is open later,
// or never. It comes before anybody else gets to know of the files.
func (c *files) openQueued() {
	if len(c.queue) == 0 {
		return
	}
	questions := make([]answer.Question[opened], 0, len(c.queue))
	for _, q := range c.queue {
		q.file.queued = false
		question := q.file.question(q.src)
		question.Answered = func(o opened, err error) {
			q.file.adopt(o, err)
			if q.fresh && err == nil && q.file.Key.Gen == 0 {
				q.file.Key.Gen = o.gen
			}
		}
		questions = append(questions, question)
	}
	c.queue = nil
	answer.AskEach(c.patience, questions)
}

// is reports whether a mapping of the given key and path is of this file.
// /proc/PID/maps shows no generation. Without it, inode numbers still agree
// for nothing but the same file as long as a descriptor keeps ours from
// being used again; failing that, the path decides.
func (f *File) is(key FileKey, path string) bool {
	if f.Key.Gen != 0 && key.Gen != 0 {
		return f.Key.Gen == key.Gen
	}
	return f.queued || f.isOpen() || f.Path == path
}

// opened notes that f holds a descriptor and, if these are too many, closes
// the file opened longest ago, preferring one that no stack has met.
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

// sweepEvery is how long files stay open at most that nobody needs any more: they
// keep what was deleted on its disk, and file systems from being unmounted. Programs
// that run again before are known.
const sweepEvery = time.Minute

// sweep forgets the files that no stack has met lately and that are not among live,
// once there are many more than the last time, or that is long ago.
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
