package dwarf

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Frame is one function at an address.
type Frame struct {
	// Name is the function's name in its source (DW_AT_name), without the
	// scopes that it is in; empty if only the line is known.
	Name string
	// SystemName is the linker's name, equal to Name where the compiler gives
	// none.
	SystemName string
	// File is the path of the source file, as the compiler saw it and without
	// resolving dots; empty if unknown.
	File string
	// StartLine is the line of the function's declaration, Line and Column
	// the place of the address, or of the call that was inlined; 1-based, 0
	// if unknown.
	StartLine, Line, Column int
	// Inlined is set for a function that was inlined into the frame that
	// follows it.
	Inlined bool
}

// LookupBatch finds the functions at addrs, which are those of the file (that
// is, virtual addresses as in its program headers) and are answered fastest
// in ascending order. The result has one element per address: the functions
// there, innermost first; a frame without a name if there is a line, but no
// function, as in assembler; nil if there is nothing. On an error the result
// is still usable and holds what could be read. It is safe for concurrent use.
func (d *Data) LookupBatch(addrs []uint64) ([][]Frame, error) {
	out := make([][]Frame, len(addrs))
	jobs := d.jobs(addrs)
	workers := min(d.workers, len(jobs))
	errs := make([]error, len(jobs))
	if workers <= 1 {
		w := worker{data: d}
		for i, j := range jobs {
			errs[i] = w.lookup(j, addrs, out)
		}
	} else {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				w := worker{data: d}
				for i := next.Add(1) - 1; int(i) < len(jobs); i = next.Add(1) - 1 {
					errs[i] = w.lookup(jobs[i], addrs, out)
				}
			})
		}
		wg.Wait()
	}
	var probs problems
	for _, err := range errs {
		probs.add(err)
	}
	return out, probs.err()
}

// run is a range of addresses in one unit.
type run struct {
	unit       int32
	first, end int32
}

// jobs returns the runs of addresses grouped by unit.
func (d *Data) jobs(addrs []uint64) [][]run {
	var runs []run
	last := run{unit: -1}
	for i, addr := range addrs {
		id := d.index.find(addr)
		if id != last.unit {
			if last.unit >= 0 {
				runs = append(runs, last)
			}
			last = run{unit: id, first: int32(i)}
		}
		last.end = int32(i) + 1
	}
	if last.unit >= 0 {
		runs = append(runs, last)
	}
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(a.unit, b.unit) })
	var jobs [][]run
	for len(runs) > 0 {
		n := 1
		for n < len(runs) && runs[n].unit == runs[0].unit {
			n++
		}
		jobs = append(jobs, runs[:n])
		runs = runs[n:]
	}
	return jobs
}

// defaultWorkers is the number of units that a batch works on at a time.
func defaultWorkers() int { return runtime.GOMAXPROCS(0) }

// worker answers batches for units, one after the other. It keeps its buffers.
type worker struct {
	data   *Data
	raw    []byte // of the unit that body is
	body   body
	loaded bool
	spans  []span
	frames []Frame // those at the end are not yet part of an answer
}

// lookup answers the addresses of one unit.
func (w *worker) lookup(runs []run, addrs []uint64, out [][]Frame) error {
	u := w.data.main.units[runs[0].unit]
	s := w.data.cache.get(u)
	defer w.data.cache.put(s)
	w.loaded = false
	var probs problems
	if !s.opened {
		s.opened = true
		s.err = w.open(s)
	}
	probs.add(s.err)
	for _, run := range runs {
		for i := run.first; i < run.end; i++ {
			frames, err := w.frames1(s, addrs[i])
			out[i] = frames
			probs.add(err)
		}
	}
	return probs.err()
}

// open reads what all look-ups in a unit need: functions and lines.
func (w *worker) open(s *state) error {
	s.body = s.unit
	s.names = map[ref]*subname{}
	s.bytes = 1024
	if err := s.unit.readRoot(); err != nil {
		return err
	}
	var probs problems
	if s.unit.root.hasLine {
		lines, err := s.unit.readLines()
		probs.add(err)
		if err == nil {
			s.lines = lines
			s.bytes += lines.size()
		}
	}
	if s.unit.root.dwoName != "" {
		body, err := w.data.splitUnit(s.unit)
		if err != nil {
			probs.add(err)
			s.whole = true
			return probs.err()
		}
		s.body = body
	}
	probs.add(w.functions(s, false))
	return probs.err()
}

// functions searches the unit for functions.
func (w *worker) functions(s *state, whole bool) error {
	s.whole = whole
	b, err := w.load(s)
	if err != nil {
		return err
	}
	var spans []span
	s.bytes -= s.index.bytes() + 16*cap(s.funcs)
	s.funcs, spans, err = b.functions(whole)
	s.index = paint(spans)
	s.bytes += s.index.bytes() + 16*cap(s.funcs)
	return err
}

// load reads the bytes of the unit unless they are at hand.
func (w *worker) load(s *state) (*body, error) {
	if w.loaded {
		return &w.body, nil
	}
	u := s.body
	abbrevs, err := u.file.readAbbrevs(u.abbrevOff, u.format)
	if err != nil {
		return nil, err
	}
	if w.raw, err = u.load(w.raw); err != nil {
		return nil, err
	}
	w.body = body{unit: u, abbrevs: abbrevs, raw: w.raw}
	w.loaded = true
	return &w.body, nil
}

// frames1 answers one address.
func (w *worker) frames1(s *state, addr uint64) ([]Frame, error) {
	var probs problems
	var at row
	hasRow := false
	if s.lines != nil {
		at, hasRow = s.lines.find(addr)
	}
	id := s.index.find(addr)
	if id < 0 && !s.whole {
		probs.add(w.functions(s, true))
		id = s.index.find(addr)
	}
	if id < 0 {
		if !hasRow {
			return nil, probs.err()
		}
		file, err := s.path(at.file)
		probs.add(err)
		return w.answer(append(w.room(1), Frame{File: file, Line: int(at.line), Column: int(at.column)})), probs.err()
	}
	fn := &s.funcs[id]
	if fn.tree == nil {
		b, err := w.load(s)
		if err != nil {
			return nil, err
		}
		fn.tree, w.spans, err = b.tree(fn, w.spans)
		probs.add(err)
		s.bytes += fn.tree.size()
	}
	t := fn.tree
	i := max(0, t.index.find(addr))
	depth := 1
	for c := t.calls[i].parent; c >= 0; c = t.calls[c].parent {
		depth++
	}
	frames := w.room(depth)
	for i >= 0 {
		c := &t.calls[i]
		if c.name == nil {
			err := w.name(s, c)
			probs.add(err)
		}
		file, err := s.path(at.file)
		probs.add(err)
		f := Frame{
			Name: c.name.name, SystemName: c.name.linkage, File: file,
			StartLine: c.name.line, Line: int(at.line), Column: int(at.column),
			Inlined: c.parent >= 0,
		}
		frames = append(frames, f)
		at = row{file: c.file, line: c.line, column: c.column}
		i = c.parent
	}
	return w.answer(frames), probs.err()
}

// room returns an empty slice for n frames, from the worker's supply.
func (w *worker) room(n int) []Frame {
	if cap(w.frames)-len(w.frames) < n {
		w.frames = make([]Frame, 0, max(512, n))
	}
	at := len(w.frames)
	return w.frames[at : at : at+n]
}

// answer takes what was put into room off the supply.
func (w *worker) answer(frames []Frame) []Frame {
	w.frames = w.frames[:len(w.frames)+len(frames)]
	return frames
}

// name makes sure that a call has a name.
func (w *worker) name(s *state, c *call) error {
	if c.name = s.names[c.origin]; c.name != nil {
		return nil
	}
	b, err := w.load(s)
	if err != nil {
		c.name = &subname{}
		return err
	}
	n, err := b.subname(c.origin)
	if n.linkage == "" {
		n.linkage = n.name
	}
	c.name = n
	s.names[c.origin] = n
	s.bytes += 128 + len(n.name) + len(n.linkage)
	return err
}

// path returns the path of a file of the unit's line table.
func (s *state) path(file uint32) (string, error) {
	if s.lines == nil {
		return "", nil
	}
	return s.lines.path(s.unit, file)
}
