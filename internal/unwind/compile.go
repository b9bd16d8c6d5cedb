package unwind

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"fulgur/internal/symbols/elffile"
)

// ErrNoTable is returned for a file that has no call frame information, and
// code for a machine whose stacks cannot be walked is such a file too.
var ErrNoTable = errors.New("no unwind information")

// Options are settings of [Compile].
type Options struct {
	// Debug opens the file with the debug information that was split from the
	// program; nil, or a result of nil, is for none. It is called at most once,
	// and only if .eh_frame leaves functions out and the program has no
	// .debug_frame of its own. The file must stay open until Compile returns.
	// An error counts as damage, for the program works without that file.
	Debug func() (*elffile.File, error)
	// Go is for a program of Go. Its .debug_frame is left out: that does not say
	// where frame pointers are, nor what is on another stack.
	Go bool
	// Workers is how many CPUs to use, all if it is 0.
	Workers int
	// MaxRows bounds the rows of a section, which take some 14 bytes each
	// while the table is made; [DefaultMaxRows] if it is 0. More are an error.
	MaxRows int
}

// DefaultMaxRows is ten times what the largest programs have. More are a file
// made to take memory.
const DefaultMaxRows = 1 << 24

// Compile makes the table of an executable, a shared library or a vdso. What
// .eh_frame does not describe is looked for in .debug_frame, be it in a file of
// its own, then among the
// things that every program has and that need no description: the stubs of the
// procedure linkage table, signal trampolines, the entry point. All else has no
// table.
//
// The error is one that wraps [ErrNoTable], or one of reading. Damaged
// information is none: see Stats.Damaged. The memory needed is about four times
// that of the table.
func Compile(f *elffile.File, opt Options) (*Table, error) {
	a := archOf(f.Machine())
	if a == nil {
		return nil, fmt.Errorf("%s: %w for machine %v", f.Name(), ErrNoTable, f.Machine())
	}
	b := builder{file: f, arch: a, code: newCodeRanges(f), workers: opt.Workers, maxRows: cmp.Or(opt.MaxRows, DefaultMaxRows)}
	if b.workers <= 0 {
		b.workers = runtime.GOMAXPROCS(0)
	}
	eh, err := openEH(f, a)
	if err != nil {
		return nil, err
	}
	if err := b.add(eh); err != nil {
		return nil, err
	}
	debug, err := b.addDebug(opt)
	if err != nil {
		return nil, err
	}
	// Signal trampolines are worth a table of their own: arm64's vdso has
	// nothing else.
	if trampolines := b.addKnown(opt); eh == nil && !debug && !trampolines {
		return nil, fmt.Errorf("%s: %w", f.Name(), ErrNoTable)
	}
	return b.table(), nil
}

// builder brings rows together.
type builder struct {
	file    *elffile.File
	arch    *arch
	code    *codeRanges
	workers int
	maxRows int
	spans   []span
	stats   Stats
}

// add reads a section, which may be nil, for the code that has no rows yet.
func (b *builder) add(s *source) error {
	if s == nil {
		return nil
	}
	chunks, err := s.read(b.workers, b.maxRows, b.code)
	if err != nil {
		return err
	}
	for _, c := range chunks {
		b.stats.Functions += len(c.spans)
		b.stats.Damaged += c.damaged
		b.stats.Damage = cmp.Or(b.stats.Damage, c.damage)
	}
	b.stats.Source += int64(s.size)
	b.spans = fill(b.spans, layer(chunks))
	return nil
}

// alignment bounds what no row describes between two functions, in bytes: more
// than that is a function.
const alignment = 64

// addDebug adds what .debug_frame says of code that has no rows yet, and reports
// whether there is one: that of the program, else that of its debug file.
func (b *builder) addDebug(opt Options) (bool, error) {
	if opt.Go {
		return false, nil
	}
	s, err := openSection(b.file, b.arch, ".debug_frame")
	if s != nil || err != nil {
		return s != nil, errors.Join(err, b.add(s))
	}
	if opt.Debug == nil || !b.lacks(alignment) {
		return false, nil
	}
	s, err = openSeparate(opt.Debug, b.arch)
	if err == nil {
		err = b.add(s)
	}
	if err != nil {
		b.stats.Damaged++
		b.stats.Damage = cmp.Or(b.stats.Damage, err)
	}
	return s != nil, nil
}

// openSeparate returns .debug_frame of the file that open opens, or nil if there is
// none.
func openSeparate(open func() (*elffile.File, error), a *arch) (*source, error) {
	f, err := open()
	if f == nil || err != nil {
		return nil, err
	}
	return openSection(f, a, ".debug_frame")
}

// lacks reports whether more than n bytes of code in a row have no rows.
func (b *builder) lacks(n uint64) bool {
	lacks := false
	b.code.gaps(b.spans, func(start, end uint64) { lacks = lacks || end-start > n })
	return lacks
}

// table lays the rows out.
func (b *builder) table() *Table {
	rows := len(b.code.segments)
	for i := range b.spans {
		rows += int(b.spans[i].n) + 1
	}
	t := &Table{Segments: b.code.segments, Rows: make([]Row, 0, rows), Stats: b.stats}
	w := tableWriter{Table: t, rules: newRuleSet()}
	spans := b.spans
	for i := range t.Segments {
		s := &t.Segments[i]
		w.begin(s)
		end := s.Addr + s.Size
		at := s.Addr
		for len(spans) > 0 && spans[0].start < end {
			if at < spans[0].start {
				w.add(at, 0)
			}
			w.span(&spans[0])
			at = spans[0].end
			spans = spans[1:]
		}
		if at < end {
			w.add(at, 0)
		}
		w.finish(end)
	}
	t.Rules = w.rules.list
	return t
}

// tableWriter appends rows to a table.
type tableWriter struct {
	*Table
	rules *ruleSet
	base  uint64 // the address of the first block of the segment
	next  uint64 // the address of the next block that has no entry in Blocks
	empty bool   // the segment has no row yet
	// last and lastAddr are of what was added last.
	last     uint32
	lastAddr uint64
}

// begin begins a segment.
func (w *tableWriter) begin(s *Segment) {
	s.FirstBlock = uint32(len(w.Blocks))
	w.base = s.Addr &^ (blockSize - 1)
	w.next = w.base
	w.empty = true
	// The first block must begin with a row, so that each address has one.
	w.add(w.base, 0)
}

// blocks enters all blocks that begin at or before addr.
func (w *tableWriter) blocks(addr uint64) {
	for w.next <= addr {
		w.Blocks = append(w.Blocks, uint32(len(w.Rows)))
		w.next += blockSize
	}
}

// add appends a row.
func (w *tableWriter) add(addr uint64, rule uint32) {
	switch {
	case w.empty || rule != w.last && addr != w.lastAddr:
		w.blocks(addr)
		w.Rows = append(w.Rows, newRow(addr, rule))
	case rule != w.last:
		w.Rows[len(w.Rows)-1] = newRow(addr, rule)
	}
	w.empty, w.last, w.lastAddr = false, rule, addr
}

// span appends the rows of a span.
func (w *tableWriter) span(s *span) {
	set := s.chunk.rules
	if set.final == nil {
		set.final = make([]uint32, len(set.list))
	}
	rows := s.rows()
	for i, row := range rows {
		addr := s.origin + uint64(row.off)
		if addr >= s.end {
			break
		}
		if addr < s.start {
			if i+1 < len(rows) && s.origin+uint64(rows[i+1].off) <= s.start {
				continue // the next one counts at the start already
			}
			addr = s.start
		}
		rule := set.final[row.rule]
		if rule == 0 && row.rule != 0 {
			rule = w.rules.add(set.list[row.rule])
			set.final[row.rule] = rule
		}
		w.add(addr, rule)
	}
}

// finish ends a segment that ends at address end, with one block more.
func (w *tableWriter) finish(end uint64) {
	w.blocks((end-1)&^(blockSize-1) + blockSize)
}
