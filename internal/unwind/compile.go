package unwind

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"fulgur/internal/symbols/callframe"
	"fulgur/internal/symbols/elffile"
)

// ErrNoTable is returned for a file without call frame information, and for code of a
// machine whose stacks cannot be walked.
var ErrNoTable = errors.New("no unwind information")

// Options configures [Compile].
type Options struct {
	// Debug opens the file with the split debug information. nil, or a nil result, means
	// none. Compile calls it at most once, and only if .eh_frame leaves out functions and
	// the program has no .debug_frame itself. The file must stay open until Compile
	// returns. An error counts as damage, because the program works without that file.
	Debug func() (*elffile.File, error)
	// Workers is the number of CPUs to use; 0 means all.
	Workers int
	// Deferred leaves the analysis of code to another table, which takes longer to make. The code
	// to analyze gets [KindUnread].
	Deferred bool
	// MaxRows bounds the rows of a section; 0 means [DefaultMaxRows]. A row takes about
	// 14 bytes while the table is made. Exceeding the limit is an error.
	MaxRows int
}

// DefaultMaxRows is ten times the number of rows of the largest programs. A file with
// more was crafted to take memory.
const DefaultMaxRows = 1 << 24

// Compile makes the table of an executable, a shared library or a vDSO. It uses .eh_frame
// first, then .debug_frame, which may be in a separate file, then its knowledge of code
// that every program has: procedure linkage tables, signal trampolines and the entry
// point. Other code gets no table.
//
// In a Go program, Go's function table takes the place of .debug_frame, which describes neither
// frame pointers nor switches to other stacks.
//
// The error wraps [ErrNoTable], or is a read error. Damaged information is not an error, but
// counted in Stats.Damaged. Compile needs about four times the memory of the table.
func Compile(f *elffile.File, opt Options) (*Table, error) {
	a := archOf(f.Machine())
	if a == nil {
		return nil, fmt.Errorf("%s: %w for machine %v", f.Name(), ErrNoTable, f.Machine())
	}
	b := builder{file: f, arch: a, code: newCodeRanges(f), workers: opt.Workers, deferred: opt.Deferred, maxRows: cmp.Or(opt.MaxRows, DefaultMaxRows)}
	if b.workers <= 0 {
		b.workers = runtime.GOMAXPROCS(0)
	}
	eh, err := callframe.OpenEH(f)
	if err != nil {
		return nil, err
	}
	if err := b.add(eh); err != nil {
		return nil, err
	}
	separate, debug, err := b.addDebug(opt)
	if err != nil {
		return nil, err
	}
	// Signal trampolines alone are worth a table: arm64's vDSO has nothing else.
	trampolines := b.addSynthetic()
	golang := b.addGo()
	if code := b.addCode(separate); eh == nil && !debug && !trampolines && !golang && !code {
		return nil, fmt.Errorf("%s: %w", f.Name(), ErrNoTable)
	}
	return b.table(), nil
}

// builder combines rows.
type builder struct {
	file     *elffile.File
	arch     *arch
	code     *codeRanges
	workers  int
	deferred bool
	maxRows  int
	spans    []span
	stats    Stats
}

// add reads a section, which may be nil, for code that has no rows yet.
func (b *builder) add(s *callframe.Section) error {
	if s == nil {
		return nil
	}
	chunks, err := readSection(s, b.arch, b.workers, b.maxRows, b.code)
	if err != nil {
		return err
	}
	for _, c := range chunks {
		b.stats.Functions += len(c.spans)
		b.stats.Damaged += c.damaged
		b.stats.Damage = cmp.Or(b.stats.Damage, c.damage)
	}
	b.stats.Source += int64(s.Size)
	b.spans = fill(b.spans, layer(chunks))
	return nil
}

// alignment is the maximum padding between two functions, in bytes. A larger gap counts as a
// function.
const alignment = 64

// addDebug adds the contents of .debug_frame for code that has no rows yet, from the
// program or else from its debug file. It reports whether there is a .debug_frame, and returns the debug
// file if it was opened.
func (b *builder) addDebug(opt Options) (separate *elffile.File, ok bool, err error) {
	if IsGo(b.file) {
		return nil, false, nil
	}
	s, err := callframe.OpenDebug(b.file)
	if s != nil || err != nil {
		err = errors.Join(err, b.add(s))
		if err != nil && len(b.spans) > 0 { // the rows from .eh_frame are good
			b.damaged(err)
			return nil, false, nil
		}
		return nil, s != nil, err
	}
	if opt.Debug == nil || !b.lacks(alignment) {
		return nil, false, nil
	}
	separate, err = opt.Debug()
	if separate != nil && err == nil {
		s, err = callframe.OpenDebug(separate)
	}
	if err == nil {
		err = b.add(s)
	}
	if err != nil {
		b.damaged(err)
	}
	return separate, s != nil, nil
}

// damaged notes a section that cannot be read.
func (b *builder) damaged(err error) {
	b.stats.Damaged++
	b.stats.Damage = cmp.Or(b.stats.Damage, err)
}

// lacks reports whether more than n consecutive bytes of code have no rows.
func (b *builder) lacks(n uint64) bool {
	lacks := false
	b.code.gaps(b.spans, func(start, end uint64) { lacks = lacks || end-start > n })
	return lacks
}

// table builds the table.
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
	base  uint64 // address of the segment's first block
	next  uint64 // address of the next block without an entry in Blocks
	empty bool   // the segment has no row yet
	// last and lastAddr describe the row added last.
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

// blocks adds all blocks that begin at or before addr.
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
				continue // the next row applies from the start
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

// finish ends a segment at address end, with one extra block.
func (w *tableWriter) finish(end uint64) {
	w.blocks((end-1)&^(blockSize-1) + blockSize)
}
