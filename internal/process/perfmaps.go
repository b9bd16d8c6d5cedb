package process

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/answer"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/monotonic"
)

// PerfMap is what a process's perf map said while it stood for the same code:
// until the process ran another program, or wrote the map from its beginning
// again. It holds all that was in the file when it was last looked at.
type PerfMap struct {
	pid  int
	from uint64   // when it began to hold, if it took another's place
	next *PerfMap // what took its place

	// file is followed until something takes the map's place or the process
	// ends; nil if there is none, or none yet.
	file  *safeopen.File
	place *perfMapPlace // where the file may still come; nil if there is one, or it is not known
	mtime unix.Timespec // of the file as kept
	kept  spooled
	err   error
}

// ReaderAt returns a reader of the map and its size in bytes, or an error
// that says why there is none: it wraps fs.ErrNotExist if the process wrote
// no map.
func (m *PerfMap) ReaderAt() (io.ReaderAt, int64, error) {
	if m.err != nil && m.kept.size == 0 {
		return nil, 0, m.err
	}
	return &m.kept, m.kept.size, nil
}

// PID returns the number of the process that wrote the map.
func (m *PerfMap) PID() int { return m.pid }

// Incomplete returns why the reader of a map has not all of it, nil if it has.
func (m *PerfMap) Incomplete() error { return m.err }

// Snapshot returns what the map and those after it say now. Unlike them it can be
// read while the table follows the maps.
func (m *PerfMap) Snapshot() *PerfMap {
	if m == nil {
		return nil
	}
	kept := spooled{in: m.kept.in, chunks: slices.Clone(m.kept.chunks), size: m.kept.size}
	return &PerfMap{pid: m.pid, from: m.from, next: m.next.Snapshot(), kept: kept, err: m.err}
}

// Next returns the map that the same program wrote in this one's place, nil
// if there is none. Where a JIT writes all its code again and again, it is
// the next map that has the youngest code of this one's time.
func (m *PerfMap) Next() *PerfMap { return m.next }

// at returns the version of the map that held at the given time.
func (m *PerfMap) at(time uint64) *PerfMap {
	for m.next != nil && m.next.from <= time {
		m = m.next
	}
	return m
}

// update keeps what was added to the file, unless it was written anew.
func (m *PerfMap) update() (rewritten bool) {
	st, err := m.file.Now()
	if err != nil {
		m.err = err
		return false
	}
	if errors.Is(m.err, answer.ErrNone) {
		m.err = nil // it answers again
	}
	if st.Size == m.kept.size && st.Mtim == m.mtime {
		return false
	}
	if st.Size < m.kept.size || !m.matches() {
		return true
	}
	if err := m.kept.append(m.file, st.Size-m.kept.size); err != nil {
		m.err = err
	}
	m.mtime = st.Mtim
	return false
}

// matches reports whether the file still has what was last kept of it, where
// it was.
func (m *PerfMap) matches() bool {
	n := min(m.kept.size, 4096)
	was, is := make([]byte, n), make([]byte, n)
	if _, err := m.kept.ReadAt(was, m.kept.size-n); err != nil {
		return true // nothing to compare with
	}
	_, err := m.file.ReadAt(is, m.kept.size-n)
	return errors.Is(err, answer.ErrNone) || err == nil && bytes.Equal(was, is)
}

// replaced returns the file that is now at the path of the map, if it is no
// longer the one that is followed.
func (m *PerfMap) replaced(patience *answer.Patience) *safeopen.File {
	st, err := m.file.Now()
	if err != nil || st.Nlink > 0 {
		return nil
	}
	f, err := openPerfMap(patience, m.pid)
	if err != nil {
		return nil // a program that ends removes its map
	}
	return f
}

// perfMaps follows the perf maps of the processes that were met in JIT code.
type perfMaps struct {
	followed map[int]*PerfMap // the newest of each process, by pid
	spool    spool
	patience *answer.Patience
	missed   time.Time // when missing maps were last looked for
}

// missingEvery is how often maps that are not there are looked for: most
// programs with a JIT never write one.
const missingEvery = time.Second

// open begins to follow the map of process pid.
func (p *perfMaps) open(pid int) *PerfMap {
	m := &PerfMap{pid: pid, kept: spooled{in: &p.spool}}
	m.file, m.err = openPerfMap(p.patience, pid)
	if m.file != nil {
		m.update()
	} else if errors.Is(m.err, fs.ErrNotExist) {
		m.place, _ = findPerfMapPlace(pid) // which may have ended, and then wrote none
	}
	p.followed[pid] = m
	return m
}

// find opens the map if there is one by now, even if the process has just ended.
func (p *perfMaps) find(m *PerfMap) {
	m.file, m.err = openPerfMap(p.patience, m.pid)
	if m.file == nil && m.place != nil && !errors.Is(m.err, answer.ErrNone) {
		m.file, m.err = askPerfMap(p.patience, m.pid, m.place.open)
	}
	if m.file != nil {
		m.forgetPlace()
	}
}

// forgetPlace closes the place where the map might have come.
func (m *PerfMap) forgetPlace() {
	if m.place != nil {
		m.place.close()
		m.place = nil
	}
}

// follow brings all maps up to date, and calls fn for each process that began
// another.
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
		if other := m.replaced(p.patience); other != nil {
			_ = file.Close() // read-only
			file, rewritten = other, true
		}
		if rewritten {
			m.file = nil
			m.next = &PerfMap{pid: pid, from: monotonic.Now(), file: file, kept: spooled{in: &p.spool}}
			m.next.update()
			p.followed[pid] = m.next
			fn(pid)
		}
	}
}

// leave takes what is left of the map of process pid, which has ended or runs
// another program from now on, and follows it no longer. If there was no map before, it
// may have one now: Java's DumpPerfMapAtExit writes it at the end.
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

// close stops following, and drops what was kept.
func (p *perfMaps) close() error {
	for pid := range p.followed {
		p.leave(pid)
	}
	return p.spool.close()
}
