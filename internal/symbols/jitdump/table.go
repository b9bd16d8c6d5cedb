package jitdump

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"fulgur/internal/symbols/symbolize"
)

// Table holds the records that a [Scanner] kept of a file.
type Table struct {
	// Reader has Size bytes: the concatenated results of [Scanner.Scan].
	Reader io.ReaderAt
	Size   int64
	// Order and LineBias are the results of the [Scanner]'s methods.
	Order    binary.ByteOrder
	LineBias uint64
	// Until, if not 0, excludes code that was compiled after that time (CLOCK_MONOTONIC, ns).
	// A child process does not have the code that its parent compiled after the fork.
	Until uint64
}

// Query is an address at a time.
type Query struct {
	Address uint64
	Time    uint64 // CLOCK_MONOTONIC, ns
}

// match is the code at an address.
type match struct {
	table  *Table
	time   uint64 // when it was loaded or moved there
	start  uint64
	at     int64  // offset of its record
	lines  int64  // offset of its line table, -1 if none
	index  uint64 // of moved code
	isMove bool
}

// Lookup returns the function at each address, or nil if it is unknown. queries must be
// sorted by address. If several functions had the address, the newest one at the query's time
// applies. If all are newer than the query, the oldest one applies, because compilers
// describe code shortly after they have written it.
//
// On error, the result is still usable and holds all functions that could be read. The error
// wraps [ErrWork] if the lookup would take too long.
func Lookup(tables []Table, queries []Query, o symbolize.Options) ([][]symbolize.Frame, error) {
	return lookUp(tables, queries, o, maxWork)
}

// lookUp is [Lookup] with a given limit of work.
func lookUp(tables []Table, queries []Query, o symbolize.Options, work int) ([][]symbolize.Frame, error) {
	l := lookup{queries: queries, matches: make([]match, len(queries)), options: o, work: work, names: map[place]symbolize.Frame{}}
	var errs []error
	for i := range tables {
		errs = append(errs, l.match(&tables[i]), l.resolveMoves(&tables[i]))
	}
	found := make([][]symbolize.Frame, len(queries))
	for i, m := range l.matches {
		if m.table == nil || m.isMove {
			continue
		}
		f, err := l.frame(m, queries[i].Address)
		if err != nil && !slices.Contains(errs, err) {
			errs = append(errs, err)
		}
		if f.Name != "" {
			found[i] = []symbolize.Frame{f}
		}
	}
	return found, errors.Join(errs...)
}

// ErrWork means that a lookup would take too long, which real files do not cause.
var ErrWork = errors.New("too much code at the same addresses, or too many lines")

// maxWork bounds the work of a lookup: the comparisons of records with queries, and the bytes
// of line tables.
const maxWork = 1 << 26

// lookup is a call of [Lookup].
type lookup struct {
	queries []Query
	matches []match
	options symbolize.Options
	work    int // left
	names   map[place]symbolize.Frame
	// The last line table and its place.
	lines   record
	linesOf place
}

// place is a record of a table.
type place struct {
	table *Table
	at    int64
}

// match sets the matches of all queries whose code is in t.
func (l *lookup) match(t *Table) error {
	return t.each(func(at, lines int64, r record) error {
		start, size, index := r.code()
		if t.Until != 0 && r.time() > t.Until {
			return nil
		}
		m := match{t, r.time(), start, at, lines, index, r.id() == recordMove}
		first := sort.Search(len(l.queries), func(i int) bool { return l.queries[i].Address >= start })
		for i := first; i < len(l.queries) && l.queries[i].Address-start < size; i++ {
			if l.work--; l.work < 0 {
				return ErrWork
			}
			if m.replaces(&l.matches[i], l.queries[i].Time) {
				l.matches[i] = m
			}
		}
		return nil
	})
}

// replaces reports whether m is a better match than old at a time.
func (m *match) replaces(old *match, time uint64) bool {
	switch {
	case old.table == nil:
		return true
	case m.time <= time:
		return old.time > time || m.time >= old.time
	}
	return old.time > time && m.time < old.time
}

// resolveMoves replaces matches of moved code by the original functions, if they are in t.
func (l *lookup) resolveMoves(t *Table) error {
	type origin struct{ at, lines int64 }
	moves := map[int64][]int{}     // matches by the offset of their record
	loaded := map[uint64]*origin{} // the last function loaded with each index
	for i, m := range l.matches {
		if m.table == t && m.isMove {
			moves[m.at] = append(moves[m.at], i)
			loaded[m.index] = nil
		}
	}
	if len(moves) == 0 {
		return nil
	}
	return t.each(func(at, lines int64, r record) error {
		_, _, index := r.code()
		if r.id() == recordLoad {
			if _, needed := loaded[index]; needed {
				loaded[index] = &origin{at, lines}
			}
			return nil
		}
		for _, i := range moves[at] {
			if from := loaded[index]; from != nil {
				m := &l.matches[i]
				m.at, m.lines, m.isMove = from.at, from.lines, false
			}
		}
		return nil
	})
}

// each calls fn for each record of code, with the offsets of the record and of its line
// table. It leaves out an incomplete record at the end, which did not fit into the copy.
func (t *Table) each(fn func(at, lines int64, r record) error) error {
	in := bufio.NewReaderSize(io.NewSectionReader(t.Reader, 0, t.Size), 1<<16)
	lines := int64(-1)
	for at := int64(0); at+prefixSize <= t.Size; {
		b, err := in.Peek(prefixSize)
		if err != nil {
			return fmt.Errorf("reading a copy of jitdump records: %w", err)
		}
		r := record{t.Order, b}
		id, size := r.id(), int(r.size())
		if size < minSize(id) {
			return errCopy
		}
		if at+int64(size) > t.Size {
			return nil
		}
		if id == recordDebugInfo {
			lines = at
		} else {
			if b, err = in.Peek(min(size, loadSize+maxName)); err != nil {
				return fmt.Errorf("reading a copy of jitdump records: %w", err)
			}
			if err := fn(at, lines, record{t.Order, b}); err != nil {
				return err
			}
			lines = -1
		}
		if _, err := in.Discard(size); err != nil {
			return fmt.Errorf("reading a copy of jitdump records: %w", err)
		}
		at += int64(size)
	}
	return nil
}

// errCopy means that the bytes are not a [Scanner]'s copy.
var errCopy = errors.New("reading a copy of jitdump records: malformed record")

// minSize returns the smallest size of a record in a copy.
func minSize(id uint32) int {
	switch id {
	case recordMove:
		return moveSize
	case recordDebugInfo:
		return debugSize
	}
	return loadSize
}

// read returns the record at an offset.
func (t *Table) read(at int64) (record, error) {
	b := make([]byte, prefixSize)
	if _, err := t.Reader.ReadAt(b, at); err != nil {
		return record{}, fmt.Errorf("reading a copy of jitdump records: %w", err)
	}
	b = make([]byte, t.Order.Uint32(b[4:]))
	if _, err := t.Reader.ReadAt(b, at); err != nil {
		return record{}, fmt.Errorf("reading a copy of jitdump records: %w", err)
	}
	return record{t.Order, b}, nil
}

// frame returns the function of m at an address. It has no name if none is known.
func (l *lookup) frame(m match, address uint64) (symbolize.Frame, error) {
	r, err := m.table.read(m.at)
	if err != nil {
		return symbolize.Frame{}, err
	}
	f, known := l.names[place{m.table, m.at}]
	if !known {
		f = symbolize.NewFrame(r.b[loadSize:], 0, l.options)
		l.names[place{m.table, m.at}] = f
	}
	f.Offset = address - m.start
	if m.lines < 0 || l.options.NoInlines {
		return f, nil
	}
	if of := (place{m.table, m.lines}); of != l.linesOf {
		if l.lines, err = m.table.read(m.lines); err != nil {
			return f, err
		}
		l.linesOf = of
	}
	if l.work -= len(l.lines.b); l.work < 0 {
		return f, ErrWork
	}
	origin, _, _ := r.code()
	file, line := l.lines.line(origin+m.table.LineBias, f.Offset)
	f.File, f.Line = string(file), line
	return f, nil
}

// line returns the file and the line of the code at offset from start, the start of the
// function in the line table. It returns no file and 0 if they are unknown.
func (r record) line(start, offset uint64) (file []byte, line int) {
	var best entry
	nearest, found := int64(0), false
	r.entries(func(e entry) {
		at := e.address - start
		if (at <= offset || isBefore(at)) && (!found || int64(at) >= nearest) {
			best, nearest, found = e, int64(at), true
		}
	})
	if best.line == 0 || len(best.file) == 0 {
		return nil, 0
	}
	return best.file, int(best.line)
}
