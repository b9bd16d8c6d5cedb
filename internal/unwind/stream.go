package unwind

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"fulgur/internal/symbols/dwarfdata"
)

const (
	// chunkSize is the number of bytes of a section that a worker takes at once.
	chunkSize = 256 << 10
	// maxEntry bounds the size of an FDE in bytes. The longest programs of real functions
	// have about ten thousand.
	maxEntry = 1 << 20
	// maxCIEs bounds the CIEs that a worker caches. Linkers emit a few in .eh_frame;
	// .debug_frame has one or two per compilation unit.
	maxCIEs = 4096
)

// span is a range of addresses with its rows: rows first to first+n of a chunk, with
// offsets relative to origin.
type span struct {
	start, end uint64
	origin     uint64
	chunk      *chunk
	first, n   uint32
}

// rows returns the span's rows.
func (s *span) rows() []localRow { return s.chunk.rows[s.first : s.first+s.n] }

// localRow is a row before the results are merged: an offset from a function's start, and
// the index of a rule in its worker.
type localRow struct{ off, rule uint32 }

// chunk is a run of whole entries and their results.
type chunk struct {
	off  uint64
	data []byte // nil after it was read

	spans   []span
	rows    []localRow
	rules   *ruleSet
	damaged int
	damage  error
}

// ruleSet numbers rules.
type ruleSet struct {
	index map[Rule]uint32
	list  []Rule
	// final holds each rule's number in the table, or 0 if it has none yet.
	final []uint32
}

func newRuleSet() *ruleSet {
	s := &ruleSet{index: map[Rule]uint32{}}
	s.add(Rule{})
	s.add(Rule{Kind: KindUnsupported})
	return s
}

// add returns the number of a rule. Above the limit, new rules become unsupported.
func (s *ruleSet) add(r Rule) uint32 {
	if i, ok := s.index[r]; ok {
		return i
	}
	if len(s.list) == maxRules {
		return s.index[Rule{Kind: KindUnsupported}]
	}
	i := uint32(len(s.list))
	s.index[r] = i
	s.list = append(s.list, r)
	return i
}

// read executes all programs of the section with the given number of workers, and returns
// the chunks in order. Only a few chunks of the section are in memory at a time. It fails
// if there are more than maxRows rows.
func (s *source) read(workers, maxRows int, code *codeRanges) ([]*chunk, error) {
	var all []*chunk
	var rows atomic.Int64
	work := make(chan *chunk)
	var wait sync.WaitGroup
	// More workers than chunks plus one would only wait.
	for range min(workers, int(s.size/chunkSize)+1) {
		wait.Go(func() {
			w := worker{src: s, code: code, rules: newRuleSet(), cies: map[uint64]*cie{}}
			w.vm = machine{arch: s.arch, emit: w.row}
			for c := range work {
				w.chunk = c
				w.read()
				rows.Add(int64(len(c.rows)))
			}
		})
	}
	tooMany := func() error {
		if rows.Load() <= int64(maxRows) {
			return nil
		}
		return fmt.Errorf("%s: more than %d rows in %s, and than any program has", s.file.Name(), maxRows, s.name)
	}
	err := s.cut(func(c *chunk) error {
		all = append(all, c)
		work <- c
		return tooMany()
	})
	close(work)
	wait.Wait()
	return all, cmp.Or(err, tooMany())
}

// cut reads the section and calls yield with chunks of whole entries until yield fails.
// If the boundaries of entries are lost, it reports the rest as damaged.
func (s *source) cut(yield func(*chunk) error) error {
	for off := uint64(0); off < s.size; {
		data := make([]byte, min(chunkSize, s.size-off))
		if err := s.fill(data, off); err != nil {
			return err
		}
		n, next := wholeEntries(data)
		if n == 0 && next <= maxEntry && next <= s.size-off {
			data = make([]byte, next)
			if err := s.fill(data, off); err != nil {
				return err
			}
			n = int(next)
		}
		c := &chunk{off: off, data: data[:n]}
		if n == 0 {
			// Too long to be real, or beyond the section's end.
			c.damaged, c.damage = 1, s.errorf(off, "entry of %d bytes", next)
			if next > s.size-off {
				next = s.size - off
			}
			n = int(next)
		}
		if err := yield(c); err != nil {
			return err
		}
		off += uint64(n)
	}
	return nil
}

func (s *source) fill(data []byte, off uint64) error {
	n, err := s.r.ReadAt(data, int64(off))
	if n == len(data) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: read %s at offset %#x: %w", s.file.Name(), s.name, off, err)
}

// wholeEntries returns the number of bytes of the whole entries at the start of data. If
// there is none, first is the number of bytes that the first one needs.
func wholeEntries(data []byte) (n int, first uint64) {
	for {
		lengthSize, length, ok := header(data[n:])
		if !ok {
			return n, uint64(len(data)) + 1 // the section ends in it
		}
		if length > uint64(len(data)-n)-lengthSize {
			if length += lengthSize; length < lengthSize {
				length = 1<<64 - 1
			}
			return n, length
		}
		n += int(lengthSize + length)
	}
}

// worker converts chunks into rows.
type worker struct {
	src   *source
	vm    machine
	code  *codeRanges
	rules *ruleSet
	chunk *chunk
	// spans and rows hold the chunk's results, in memory that all chunks share.
	spans []span
	rows  []localRow

	cies    map[uint64]*cie
	lastOff uint64 // offset of the CIE in vm, if any
	lastRow Rule   // the rule of the function's last row
	hasRow  bool
}

func (w *worker) damage(err error) {
	if w.chunk.damaged == 0 {
		w.chunk.damage = err
	}
	w.chunk.damaged++
}

// read executes the programs of the chunk's FDEs.
func (w *worker) read() {
	c := w.chunk
	c.rules = w.rules
	w.spans, w.rows = w.spans[:0], w.rows[:0]
	for pos := uint64(0); pos < uint64(len(c.data)); {
		lengthSize, length, _ := header(c.data[pos:])
		whole := c.data[pos:][:lengthSize+length]
		off := c.off + pos
		pos += uint64(len(whole))
		if length == 0 {
			continue // a terminator between the linked tables
		}
		e, ok := w.src.entry(whole, off)
		switch {
		case !ok:
			w.damage(w.src.errorf(off, "entry without an ID"))
		case !e.isCIE:
			w.fde(&e)
		}
	}
	c.data = nil
	c.spans, c.rows = slices.Clone(w.spans), slices.Clone(w.rows)
}

// useCIE makes the CIE at offset off current.
func (w *worker) useCIE(off uint64) {
	if w.vm.cie != nil && w.lastOff == off {
		return
	}
	w.lastOff = off
	if w.vm.cie = w.cies[off]; w.vm.cie != nil {
		return
	}
	if len(w.cies) == maxCIEs {
		clear(w.cies)
	}
	w.vm.cie = w.src.readCIE(off)
	w.cies[off] = w.vm.cie
}

// fde executes the program of an FDE.
func (w *worker) fde(e *entry) {
	w.useCIE(w.src.cieOffset(e))
	c := w.vm.cie
	if c.err != nil {
		w.damage(c.err)
		return
	}
	r := &e.buf
	start := readPointer(r, c.enc, c.addrSize, e.base, w.src.data)
	size := readEncoded(r, c.enc, c.addrSize)
	if c.augmented {
		r.Block()
	}
	if r.Bad {
		w.damage(w.src.errorf(e.off, "FDE ends too early"))
		return
	}
	// For functions that it dropped, the linker leaves a size or an address of 0.
	limit, ok := w.code.end(start)
	if !ok || start == 0 || size == 0 {
		return
	}
	size = min(size, limit-start)
	first := len(w.rows)
	w.vm.state, w.vm.size, w.vm.remembered, w.hasRow = c.initial, size, w.vm.remembered[:0], false
	program := dwarfdata.Reader{Data: r.Data[r.Pos:]}
	if !w.vm.run(&program, e.base+uint64(r.Pos), start) {
		w.damage(w.src.errorf(e.off, "FDE of %#x with a damaged program", start))
	}
	w.spans = append(w.spans, span{
		start: start, end: start + size, origin: start,
		chunk: w.chunk, first: uint32(first), n: uint32(len(w.rows) - first),
	})
}

// row adds a row of the current function, unless it repeats the last one.
func (w *worker) row(off uint64, r Rule) {
	if w.hasRow && w.lastRow == r || off > 1<<32-1 {
		return
	}
	w.hasRow, w.lastRow = true, r
	w.rows = append(w.rows, localRow{uint32(off), w.rules.add(r)})
}
