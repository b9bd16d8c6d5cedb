package unwind

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"fulgur/internal/symbols/callframe"
	"fulgur/internal/symbols/dwarfdata"
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

// chunk holds the results of a run of whole entries.
type chunk struct {
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
	// recent holds numbers of rules that were added lately, which most functions repeat.
	recent [recentRules]uint32
	// final holds each rule's number in the table, or 0 if it has none yet.
	final []uint32
}

// recentRules is a power of two.
const recentRules = 64

func newRuleSet() *ruleSet {
	s := &ruleSet{index: map[Rule]uint32{}}
	s.add(Rule{})
	s.add(Rule{Kind: KindUnsupported})
	return s
}

// add returns the number of a rule. Above the limit, new rules become unsupported.
func (s *ruleSet) add(r Rule) uint32 {
	recent := &s.recent[uint32(r.CFA/8^r.FP)%recentRules]
	if i := *recent; int(i) < len(s.list) && s.list[i] == r {
		return i
	}
	if i, ok := s.index[r]; ok {
		*recent = i
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

// readSection executes all programs of a section with the given number of workers, and
// returns the chunks in order. Only a few chunks of the section are in memory at a time. It
// fails if there are more than maxRows rows.
func readSection(s *callframe.Section, a *arch, workers, maxRows int, code *codeRanges) ([]*chunk, error) {
	type job struct {
		entries callframe.Chunk
		result  *chunk
	}
	var all []*chunk
	var rows atomic.Int64
	work := make(chan job)
	var wait sync.WaitGroup
	// Any more workers would have no chunk to read.
	for range min(workers, int(s.Size/callframe.ChunkSize)+1) {
		wait.Go(func() {
			w := worker{src: s, code: code, rules: newRuleSet(), scratch: scratchPool.Get().(*scratch)}
			defer w.free()
			w.vm = machine{arch: a, emit: w.row}
			for j := range work {
				w.chunk = j.result
				w.read(j.entries)
				rows.Add(int64(len(j.result.rows)))
			}
		})
	}
	tooMany := func() error {
		if rows.Load() <= int64(maxRows) {
			return nil
		}
		return fmt.Errorf("%s: more than %d rows in %s, more than any program needs", s.File().Name(), maxRows, s.Name())
	}
	err := s.Chunks(func(entries callframe.Chunk) error {
		c := &chunk{}
		all = append(all, c)
		work <- job{entries, c}
		return tooMany()
	})
	close(work)
	wait.Wait()
	return all, cmp.Or(err, tooMany())
}

// scratch collects a chunk's results. A worker reuses it for each chunk.
type scratch struct {
	spans []span
	rows  []localRow
}

// scratchPool keeps the memory of workers that ended for the next file, since a process's
// files are compiled one after the other.
var scratchPool = sync.Pool{New: func() any { return new(scratch) }}

// free passes the memory on to the next worker.
func (s *scratch) free() {
	clear(s.spans[:cap(s.spans)]) // they refer to chunks
	scratchPool.Put(s)
}

// worker converts chunks into rows.
type worker struct {
	src   *callframe.Section
	vm    machine
	code  *codeRanges
	rules *ruleSet
	chunk *chunk
	*scratch

	cies    callframe.CIEs[*cie]
	lastRow Rule // the rule of the function's last row
	hasRow  bool
}

func (w *worker) damage(err error) {
	if w.chunk.damaged == 0 {
		w.chunk.damage = err
	}
	w.chunk.damaged++
}

// read executes the programs of the chunk's FDEs.
func (w *worker) read(entries callframe.Chunk) {
	c := w.chunk
	c.rules = w.rules
	w.spans, w.rows = w.spans[:0], w.rows[:0]
	if entries.Damage != nil {
		w.damage(entries.Damage)
	}
	w.src.Entries(entries, func(e *callframe.Entry, err error) {
		switch {
		case err != nil:
			w.damage(err)
		case !e.IsCIE:
			w.fde(e)
		}
	})
	c.spans, c.rows = slices.Clone(w.spans), slices.Clone(w.rows)
}

// fde executes the program of an FDE.
func (w *worker) fde(e *callframe.Entry) {
	c := w.cies.Get(w.src.CIE(e), func(off uint64) *cie { return readCIE(w.src, w.vm.arch, off) })
	f, err := w.src.FDE(e, c.CIE)
	if err != nil {
		w.damage(err)
		return
	}
	// A function that the linker dropped has a size or an address of 0.
	start, size := f.Start, f.Size
	limit, ok := w.code.end(start)
	if !ok || start == 0 || size == 0 {
		return
	}
	size = min(size, limit-start)
	first := len(w.rows)
	w.vm.cie = c
	w.vm.state, w.vm.size, w.vm.remembered, w.hasRow = c.initial, size, w.vm.remembered[:0], false
	if !w.vm.run(&dwarfdata.Reader{Data: f.Program.Data}, f.Program.Addr, start) {
		w.damage(w.src.Errorf(e.Off, "FDE of %#x with a damaged program", start))
	}
	w.spans = append(w.spans, span{
		start: start, end: start + size, origin: start,
		chunk: w.chunk, first: uint32(first), n: uint32(len(w.rows) - first),
	})
}

// row adds a row of the current function, unless it repeats the last one.
func (w *worker) row(off uint64, r *Rule) {
	if w.hasRow && w.lastRow == *r || off > 1<<32-1 {
		return
	}
	w.hasRow, w.lastRow = true, *r
	w.rows = append(w.rows, localRow{uint32(off), w.rules.add(*r)})
}
