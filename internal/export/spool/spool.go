// Package spool keeps encoded profiles until they are sent, in a directory or, if there is
// none or writing fails, in memory. Both have a size limit, above which the oldest profiles
// are evicted.
//
// A new profile is in memory at first. [Spool.Next] returns the pending work on files, so
// that the caller can do it without blocking the spool.
package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MemoryLimit limits the size of the profiles in memory, in bytes.
const MemoryLimit = 16 << 20

// Entry is a profile in a [Spool].
type Entry struct {
	Head
	number uint64
	size   int64
	data   []byte // nil if it is in a file
	held   bool   // it is being sent, so it is not evicted
	gone   bool   // it was removed
}

// Spool keeps profiles. It is not safe for concurrent use, except for the functions that
// [Spool.Next] and [Spool.Reader] return.
type Spool struct {
	root    *os.Root // nil for memory only
	lock    *os.File
	limit   int64 // of files, in bytes
	last    uint64
	entries []*Entry // oldest first
	unused  []string // files to remove
	corrupt []string // files to set aside
	begun   bool     // this run has begun to measure
	silent  bool     // the time of the running file is out of date
}

// Found describes the profiles that an earlier run left behind.
type Found struct {
	// Entries and Samples are the numbers of waiting profiles and their samples.
	Entries int
	Samples uint64
	// Corrupt is the number of files that were set aside. Unreadable is the number of files
	// that could not be read; they stay for the next run.
	Corrupt, Unreadable int
	// Stopped is when the earlier run was last alive, or zero if it was not killed.
	Stopped time.Time
}

// InMemory returns a spool without files.
func InMemory() *Spool { return new(Spool) }

// Names of files.
const (
	ending        = ".window"
	corruptEnding = ".corrupt"
	lockName      = "lock"
	aliveName     = "running"
	freshName     = "incomplete"
)

// maxCorrupt is the maximum number of corrupt files to keep for investigation.
const maxCorrupt = 8

// Open opens the spool in a directory, and creates the directory if necessary, but not its
// parents. The directory must belong to the user and be inaccessible to other users. limit is
// in bytes.
func Open(dir string, limit int64) (s *Spool, found Found, err error) {
	s = &Spool{limit: limit}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("spool %s: %w", dir, err), s.release())
		}
	}()
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return s, found, err
	}
	if s.root, err = openPrivate(dir); err != nil {
		return s, found, err
	}
	if s.lock, err = s.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600); err != nil {
		return s, found, err
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return s, found, errors.New("in use by another fulgur")
	}
	if info, err := s.root.Lstat(aliveName); err == nil {
		found.Stopped = info.ModTime()
	}
	err = s.scan(&found)
	return s, found, err
}

// Begin records that this run measures from now on. Until then, the time at which an earlier
// run was last alive is kept.
func (s *Spool) Begin() { s.begun, s.silent = true, s.root != nil }

// openPrivate opens a directory that only the user and root can change.
func openPrivate(dir string) (*os.Root, error) {
	before, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, errors.New("not a directory")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	info, statErr := f.Stat()
	switch {
	case err != nil || statErr != nil:
	case !os.SameFile(before, info):
		err = errors.New("it was replaced")
	case st.Uid != uint32(os.Geteuid()):
		err = fmt.Errorf("it belongs to user %d, but must belong to user %d", st.Uid, os.Geteuid())
	case st.Mode&0o077 != 0:
		err = errors.New("other users have access: set its mode to 0700")
	}
	if err = errors.Join(err, statErr, f.Close()); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// scan lists the files of an earlier run.
func (s *Spool) scan(found *Found) error {
	dir, err := s.root.Open(".")
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return err
	}
	slices.Sort(names) // numbers have leading zeros
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, ending)
		number, err := strconv.ParseUint(digits, 10, 64)
		if !ok || err != nil || name != fileName(number) {
			continue
		}
		s.last = max(s.last, number)
		e := &Entry{number: number}
		e.Head, e.size, err = s.readHead(name)
		switch {
		case errors.Is(err, ErrCorrupt):
			found.Corrupt++
			if err := s.setAside(name); err != nil {
				return err
			}
		case err != nil:
			found.Unreadable++
		default:
			s.entries = append(s.entries, e)
			found.Entries++
			found.Samples += e.Samples
		}
	}
	return nil
}

func fileName(number uint64) string { return fmt.Sprintf("%020d%s", number, ending) }

// Put adds a profile in memory. It returns the evicted profiles: older ones, or even this
// one.
func (s *Spool) Put(r Record) (lost []*Entry) {
	s.last++
	e := &Entry{Head: r.Head, number: s.last, size: int64(len(r.data)), data: r.data}
	s.entries = append(s.entries, e)
	s.silent = s.begun && s.root != nil
	return s.evict()
}

// Work is work on files. Do does the work, and may run concurrently with all methods of the
// spool. Call Done with the result of Do; it returns the evicted entries. Stores is set for work
// that writes an entry, and needs space.
type Work struct {
	Do     func() error
	Done   func(error) (lost []*Entry)
	Stores bool
}

// Next returns the next work on files, or nil if there is none. Finish other work before.
// Work that frees space comes first. A file that could not be written is written again.
func (s *Spool) Next() *Work {
	switch {
	case s.root == nil:
		return nil
	case len(s.unused) > 0:
		name := s.unused[0]
		s.unused = s.unused[1:] // if removing fails, the next run finds the file and sends it again
		return &Work{Do: func() error { return s.root.Remove(name) }, Done: nothingLost}
	case len(s.corrupt) > 0:
		name := s.corrupt[0]
		s.corrupt = s.corrupt[1:]
		return &Work{Do: func() error { return s.setAside(name) }, Done: nothingLost}
	case s.silent:
		s.silent = false
		return &Work{Do: s.touch, Done: nothingLost}
	}
	for _, e := range s.entries {
		if e.data != nil {
			return s.store(e)
		}
	}
	return nil
}

func nothingLost(error) []*Entry { return nil }

// store returns the work to write an entry's file.
func (s *Spool) store(e *Entry) *Work {
	data, name := e.data, fileName(e.number)
	return &Work{Stores: true, Do: func() error { return s.write(name, data) }, Done: func(err error) []*Entry {
		switch {
		case err != nil:
			return nil
		case e.gone:
			s.unused = append(s.unused, name)
			return nil
		}
		e.data = nil
		return s.evict()
	}}
}

// write writes a file.
func (s *Spool) write(name string, data []byte) (err error) {
	f, err := s.root.OpenFile(freshName, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", s.root.Name(), err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = s.root.Rename(freshName, name)
	}
	if err != nil {
		err = errors.Join(err, s.root.Remove(freshName))
	}
	return err
}

// evict removes the oldest entries until the limits are met, and returns them.
func (s *Spool) evict() (lost []*Entry) {
	for _, inMemory := range []bool{true, false} {
		limit := s.limit
		if inMemory {
			limit = MemoryLimit
		}
		var size int64
		for _, e := range s.entries {
			if (e.data != nil) == inMemory {
				size += e.size
			}
		}
		for _, e := range slices.Clone(s.entries) {
			if size > limit && (e.data != nil) == inMemory && !e.held {
				size -= e.size
				lost = append(lost, e)
				s.Remove(e)
			}
		}
	}
	return lost
}

// All returns the entries, the oldest first.
func (s *Spool) All() []*Entry { return s.entries }

// Reader returns a function that reads an entry's message, which may be called concurrently
// with all methods of the spool. The entry is not evicted before [Spool.Release]. The
// function's error wraps [ErrCorrupt] if the file is missing or has changed.
func (s *Spool) Reader(e *Entry) func() ([]byte, error) {
	e.held = true
	data, name := e.data, fileName(e.number)
	return func() (message []byte, err error) {
		if data == nil {
			if data, err = s.read(name); errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
			if err != nil {
				return nil, err
			}
		}
		return decode(data)
	}
}

// Release allows an entry to be evicted again, see [Spool.Reader].
func (s *Spool) Release(e *Entry) { e.held = false }

// Remove removes an entry.
func (s *Spool) Remove(e *Entry) {
	s.drop(e)
	if e.data == nil {
		s.unused = append(s.unused, fileName(e.number))
	}
}

// SetAside removes an entry whose file is corrupt, but keeps the file.
func (s *Spool) SetAside(e *Entry) {
	s.drop(e)
	if e.data == nil {
		s.corrupt = append(s.corrupt, fileName(e.number))
	}
}

func (s *Spool) drop(e *Entry) {
	e.gone = true
	s.entries = slices.DeleteFunc(s.entries, func(other *Entry) bool { return other == e })
}

// setAside renames a corrupt file, and removes the oldest corrupt files above maxCorrupt.
func (s *Spool) setAside(name string) error {
	if err := s.root.Rename(name, name+corruptEnding); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all, err := fs.Glob(s.root.FS(), "*"+corruptEnding)
	slices.Sort(all)
	for ; err == nil && len(all) > maxCorrupt; all = all[1:] {
		err = s.root.Remove(all[0])
	}
	return err
}

// maxFile limits the size of a file, in bytes.
const maxFile = 64 << 20

// read reads a whole file.
func (s *Spool) read(name string) ([]byte, error) {
	f, err := s.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%w: not a file of a spool", ErrCorrupt)
	}
	data := make([]byte, info.Size())
	if _, err = f.ReadAt(data, 0); errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: it was truncated", ErrCorrupt)
	}
	return data, err
}

// readHead returns the head of a file, and the file's size.
func (s *Spool) readHead(name string) (Head, int64, error) {
	data, err := s.read(name)
	if err != nil {
		return Head{}, 0, err
	}
	h, _, _, err := parse(data)
	return h, int64(len(data)), err
}

// touch records that this run is alive.
func (s *Spool) touch() error {
	f, err := s.root.OpenFile(aliveName, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	now := time.Now()
	return errors.Join(s.root.Chtimes(aliveName, now, now), f.Close())
}

// Usage is the fill level of a spool.
type Usage struct {
	Entries       int
	Samples       uint64
	Files, Memory int64 // bytes
}

// Usage returns the fill level of the spool.
func (s *Spool) Usage() (u Usage) {
	for _, e := range s.entries {
		u.Entries++
		u.Samples += e.Samples
		if e.data == nil {
			u.Files += e.size
		} else {
			u.Memory += e.size
		}
	}
	return u
}

// Close closes the spool. Files stay for the next run. It returns the entries that were only
// in memory, which are lost.
func (s *Spool) Close() (lost []*Entry, err error) {
	for _, e := range s.entries {
		if e.data != nil {
			lost = append(lost, e)
		}
	}
	if s.root != nil && s.begun {
		if err = s.root.Remove(aliveName); errors.Is(err, fs.ErrNotExist) {
			err = nil // the file was not written yet
		}
	}
	return lost, errors.Join(err, s.release())
}

func (s *Spool) release() (err error) {
	if s.lock != nil {
		err = s.lock.Close()
	}
	if s.root != nil {
		err = errors.Join(err, s.root.Close())
	}
	return err
}
