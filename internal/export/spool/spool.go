// Package spool keeps encoded profiles until they are sent: in a directory, or in memory if
// there is none or it cannot take them. Both have a limit, above which the oldest give way.
package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MemoryLimit is the limit of what is kept in memory, in bytes.
const MemoryLimit = 16 << 20

// Entry is a profile in a [Spool].
type Entry struct {
	Head
	number uint64
	size   int64
	data   []byte // nil if it is in a file
	sent   bool   // is being sent, so it stays
}

// Spool keeps profiles. It is not safe for concurrent use.
type Spool struct {
	root    *os.Root // nil for memory only
	lock    *os.File
	limit   int64 // of files, in bytes
	last    uint64
	entries []*Entry // oldest first
}

// Found is what an earlier run left behind.
type Found struct {
	// Entries and Samples are the profiles that wait.
	Entries int
	Samples uint64
	// Corrupt is the number of files that were set aside.
	Corrupt int
	// Stopped is when the earlier run was last alive if it was killed, else zero.
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

// maxCorrupt limits the corrupt files that are kept for an investigation.
const maxCorrupt = 8

// Open opens the spool in a directory, which it creates if only that is missing. It must
// belong to the user and be closed to others. limit is in bytes.
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
		return s, found, errors.New("another fulgur uses it")
	}
	if info, err := s.root.Lstat(aliveName); err == nil {
		found.Stopped = info.ModTime()
	}
	if err := s.scan(&found); err != nil {
		return s, found, err
	}
	err = s.touch()
	return s, found, err
}

// openPrivate opens a directory that nobody but the user and root can change.
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
		if e.Head, e.size, err = s.readHead(name); err != nil {
			found.Corrupt++
			if err := s.setAside(e); err != nil {
				return err
			}
			continue
		}
		s.entries = append(s.entries, e)
		found.Entries++
		found.Samples += e.Samples
	}
	return nil
}

func fileName(number uint64) string { return fmt.Sprintf("%020d%s", number, ending) }

// Put adds an encoded profile, and returns what it pushed out: older ones, or even this
// one. If the directory cannot take it, it is kept in memory, and err says why.
func (s *Spool) Put(h Head, message []byte) (lost []Head, err error) {
	data, err := encode(h, message)
	if err != nil {
		return []Head{h}, err
	}
	s.last++
	e := &Entry{Head: h, number: s.last, size: int64(len(data)), data: data}
	if s.root != nil {
		if err = s.write(e); err == nil {
			e.data = nil
		}
	}
	s.entries = append(s.entries, e)
	return s.evict(), errors.Join(err, s.touch())
}

// write writes an entry's file.
func (s *Spool) write(e *Entry) (err error) {
	f, err := s.root.OpenFile(freshName, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(e.data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = s.root.Rename(freshName, fileName(e.number))
	}
	if err != nil {
		err = errors.Join(err, s.root.Remove(freshName))
	}
	return err
}

// evict removes the oldest entries above the limits.
func (s *Spool) evict() (lost []Head) {
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
		s.entries = slices.DeleteFunc(s.entries, func(e *Entry) bool {
			if size <= limit || (e.data != nil) != inMemory || e.sent {
				return false
			}
			size -= e.size
			lost = append(lost, e.Head)
			s.unlink(e)
			return true
		})
	}
	return lost
}

// unlink removes an entry's file. A file that stays is found by the next run, and its
// profile sent once more.
func (s *Spool) unlink(e *Entry) {
	if e.data == nil {
		_ = s.root.Remove(fileName(e.number))
	}
}

// Oldest returns the oldest entry, which then stays until [Spool.Remove] or
// [Spool.Release]; nil if there is none.
func (s *Spool) Oldest() *Entry {
	if len(s.entries) == 0 {
		return nil
	}
	s.entries[0].sent = true
	return s.entries[0]
}

// Release allows an entry to give way.
func (s *Spool) Release(e *Entry) { e.sent = false }

// Message returns an entry's encoded profile. If the file is corrupt, it is set aside, and
// the error is [ErrCorrupt].
func (s *Spool) Message(e *Entry) ([]byte, error) {
	data := e.data
	var err error
	if data == nil {
		data, err = s.read(fileName(e.number))
	}
	if err == nil {
		var message []byte
		if _, message, err = decode(data); err == nil {
			return message, nil
		}
	}
	s.drop(e)
	if e.data == nil {
		err = errors.Join(err, s.setAside(e))
	}
	return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// Remove removes an entry.
func (s *Spool) Remove(e *Entry) {
	s.drop(e)
	s.unlink(e)
}

func (s *Spool) drop(e *Entry) {
	s.entries = slices.DeleteFunc(s.entries, func(other *Entry) bool { return other == e })
}

// setAside renames a corrupt file, and removes the oldest such files if there are many.
func (s *Spool) setAside(e *Entry) error {
	name := fileName(e.number)
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
		return nil, errors.New("not a file of a spool")
	}
	data := make([]byte, info.Size())
	_, err = f.ReadAt(data, 0)
	return data, err
}

// readHead returns what a file says of itself, and its size.
func (s *Spool) readHead(name string) (Head, int64, error) {
	data, err := s.read(name)
	if err != nil {
		return Head{}, 0, err
	}
	h, _, err := decode(data)
	return h, int64(len(data)), err
}

// touch notes that this run is alive.
func (s *Spool) touch() error {
	if s.root == nil {
		return nil
	}
	f, err := s.root.OpenFile(aliveName, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	now := time.Now()
	return errors.Join(s.root.Chtimes(aliveName, now, now), f.Close())
}

// Usage is how full a spool is.
type Usage struct {
	Entries       int
	Samples       uint64
	Files, Memory int64 // bytes
}

// Usage returns how full the spool is.
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

// Close ends the run. Files stay for the next one. It returns what was only in memory.
func (s *Spool) Close() (lost []Head, err error) {
	for _, e := range s.entries {
		if e.data != nil {
			lost = append(lost, e.Head)
		}
	}
	if s.root != nil {
		err = s.root.Remove(aliveName)
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
