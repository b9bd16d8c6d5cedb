package process

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
)

// PerfMap is a version of a process's perf map. It ends when the process executes another
// program or rewrites the map from its beginning. It holds the file's contents as of the
// last update.
type PerfMap struct {
	pid  int
	from uint64   // when it became valid, if it replaced another one
	next *PerfMap // the version that replaced it

	// file is followed until another version replaces this one or the process ends. nil
	// if the file does not exist (yet).
	file  *safeopen.File
	place *perfMapPlace // where the file may still appear; nil if file is open or the place is unknown
	mtime unix.Timespec // of the copied contents
	kept  spooled
	err   error
}

// ReaderAt returns a reader of the map and its size in bytes. If there is none, the
// error is the reason: it wraps fs.ErrNotExist if the process wrote no map.
func (m *PerfMap) ReaderAt() (io.ReaderAt, int64, error) {
	if m.err != nil && m.kept.size == 0 {
		return nil, 0, m.err
	}
	return &m.kept, m.kept.size, nil
}

// PID returns the ID of the process that wrote the map.
func (m *PerfMap) PID() int { return m.pid }

// Incomplete returns the reason if the map's reader lacks part of it, or nil if it is
// complete.
func (m *PerfMap) Incomplete() error { return m.err }

// Snapshot returns a copy of the map and its later versions that can be read while the
// table keeps following the maps.
func (m *PerfMap) Snapshot() *PerfMap {
	if m == nil {
		return nil
	}
	return &PerfMap{pid: m.pid, from: m.from, next: m.next.Snapshot(), kept: m.kept.clone(), err: m.err}
}

// Next returns the version that replaced this one while the program was the same, or nil. If
// a JIT rewrites its whole map repeatedly, the newest code from this version's time is in the
// next version.
func (m *PerfMap) Next() *PerfMap { return m.next }

// at returns the version of the map that was valid at the given time.
func (m *PerfMap) at(time uint64) *PerfMap {
	for m.next != nil && m.next.from <= time {
		m = m.next
	}
	return m
}

// update copies the data appended to the file, unless the file was rewritten.
func (m *PerfMap) update() (rewritten bool) {
	st, err := m.file.Now()
	if err != nil {
		m.err = err
		return false
	}
	if errors.Is(m.err, safeopen.ErrNoAnswer) {
		m.err = nil // the file system responds again
	}
	if st.Size == m.kept.size && st.Mtim == m.mtime {
		return false
	}
	if st.Size < m.kept.size || !m.matches() {
		return true
	}
	if err := m.kept.append(io.NewSectionReader(m.file, m.kept.size, st.Size-m.kept.size), st.Size-m.kept.size); err != nil {
		m.err = err
	}
	m.mtime = st.Mtim
	return false
}

// matches reports whether the end of the copied contents is still in the file at the same
// place.
func (m *PerfMap) matches() bool {
	n := min(m.kept.size, 4096)
	was, is := make([]byte, n), make([]byte, n)
	if _, err := m.kept.ReadAt(was, m.kept.size-n); err != nil {
		return true // nothing to compare with
	}
	_, err := m.file.ReadAt(is, m.kept.size-n)
	return errors.Is(err, safeopen.ErrNoAnswer) || err == nil && bytes.Equal(was, is)
}

// replaced returns the file at the map's path if it is no longer the followed one.
func (m *PerfMap) replaced(budget *safeopen.Budget) *safeopen.File {
	st, err := m.file.Now()
	if err != nil || st.Nlink > 0 {
		return nil
	}
	f, err := openPerfMap(budget, m.pid)
	if err != nil {
		return nil // a program that ends may remove its map
	}
	return f
}

// perfMaps follows the perf maps of processes that were sampled in JIT code.
type perfMaps struct {
	followed map[int]*PerfMap // the newest version of each process, by pid
	spool    *spool
	budget   *safeopen.Budget
	missed   time.Time // when missing maps were last looked for
}

// missingEvery is the time between two searches for missing maps. Most programs with a JIT
// never write one.
const missingEvery = time.Second

// open starts to follow the map of process pid.
func (p *perfMaps) open(pid int) *PerfMap {
	m := &PerfMap{pid: pid, kept: spooled{in: p.spool}}
	m.file, m.err = openPerfMap(p.budget, pid)
	if m.file != nil {
		m.update()
	} else if errors.Is(m.err, fs.ErrNotExist) {
		m.place, _ = findPerfMapPlace(pid) // the process may have ended without writing one
	}
	p.followed[pid] = m
	return m
}

// find opens the map if it exists now, even if the process has just ended.
func (p *perfMaps) find(m *PerfMap) {
	m.file, m.err = openPerfMap(p.budget, m.pid)
	if m.file == nil && m.place != nil && !errors.Is(m.err, safeopen.ErrNoAnswer) {
		m.file, m.err = askPerfMap(p.budget, m.pid, m.place.open)
	}
	if m.file != nil {
		m.forgetPlace()
	}
}

// forgetPlace closes the place where the map might have appeared.
func (m *PerfMap) forgetPlace() {
	if m.place != nil {
		m.place.close()
		m.place = nil
	}
}

// follow updates all maps, and calls fn for each process that began a new version.
func (p *perfMaps) follow(fn func(pid int)) {
	missing := time.Since(p.missed) >= missingEvery
	if missing {
		p.missed = time.Now()
	}
	for pid, m := range p.followed {
		if m.file == nil && missing {
			p.find(m)
		}
		if m.file == nil {
			continue
		}
		rewritten := m.update()
		file := m.file
		if other := m.replaced(p.budget); other != nil {
			_ = file.Close() // read-only
			file, rewritten = other, true
		}
		if rewritten {
			m.file = nil
			m.next = &PerfMap{pid: pid, from: monotonic.Now(), file: file, kept: spooled{in: p.spool}}
			m.next.update()
			p.followed[pid] = m.next
			fn(pid)
		}
	}
}

// leave copies the rest of the map of process pid, which has ended or executed another
// program, and stops following it. A missing map may have appeared: Java's DumpPerfMapAtExit
// writes it at the end.
func (p *perfMaps) leave(pid int) {
	m := p.followed[pid]
	if m == nil {
		return
	}
	delete(p.followed, pid)
	if m.place != nil {
		p.find(m)
		m.forgetPlace()
	}
	if m.file != nil {
		m.update()
		_ = m.file.Close() // read-only
		m.file = nil
	}
}

// close stops following all maps.
func (p *perfMaps) close() {
	for pid := range p.followed {
		p.leave(pid)
	}
}
