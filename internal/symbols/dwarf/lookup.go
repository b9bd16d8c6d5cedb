package dwarf

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Frame is a function at an address.
type Frame struct {
	// Function is nil if only the line is known, as in assembly.
	Function *Function
	// File is the path of the source file as the compiler saw it, with dots unresolved.
	// It is empty if unknown.
	File string
	// Line and Column are the position of the address, or of the inlined call. They are
	// 1-based, or 0 if unknown.
	Line, Column int32
	// Discriminator distinguishes blocks of code on the same line (6.2.2), in the compiler's
	// encoding. It is 0 if unknown.
	Discriminator uint32
	// Inlined is set for a function that was inlined into the next frame.
	Inlined bool
}

// LookupBatch finds the functions at addrs, which are link-time addresses as in the file's
// program headers. Ascending addresses are fastest. The result has one element per address:
// the functions there, innermost first; a frame without a function if only the line is known,
// as in assembly; nil if nothing is known. On error, the result is still usable and holds all
// frames that could be read before [Options].Context was done. LookupBatch is safe for
// concurrent use.
func (d *Data) LookupBatch(addrs []uint64) ([][]Frame, error) {
	out := make([][]Frame, len(addrs))
	err := d.eachUnit(addrs, func(w *worker, groups []unitAddrs) error { return w.lookup(groups, addrs, out) })
	return out, err
}

// eachUnit groups addresses by unit and calls each for every group, on several CPUs. It
// returns all errors.
func (d *Data) eachUnit(addrs []uint64, each func(*worker, []unitAddrs) error) error {
	jobs := d.jobs(addrs)
	workers := min(d.workers, len(jobs))
	errs := make([]error, len(jobs))
	if workers <= 1 {
		w := worker{data: d}
		for i, j := range jobs {
			if d.ctx.Err() != nil {
				break
			}
			errs[i] = each(&w, j)
		}
	} else {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				w := worker{data: d}
				for i := next.Add(1) - 1; int(i) < len(jobs) && d.ctx.Err() == nil; i = next.Add(1) - 1 {
					errs[i] = each(&w, jobs[i])
				}
			})
		}
		wg.Wait()
	}
	var probs problems
	for _, err := range errs {
		probs.add(err)
	}
	return errors.Join(d.ctx.Err(), probs.err())
}

// unitAddrs are consecutive addresses in the same unit, by their indexes.
type unitAddrs struct {
	unit       int32
	first, end int32
}

// jobs returns the addresses by unit.
func (d *Data) jobs(addrs []uint64) [][]unitAddrs {
	var groups []unitAddrs
	last := unitAddrs{unit: -1}
	for i, addr := range addrs {
		id := d.index.find(addr)
		if id != last.unit {
			if last.unit >= 0 {
				groups = append(groups, last)
			}
			last = unitAddrs{unit: id, first: int32(i)}
		}
		last.end = int32(i) + 1
	}
	if last.unit >= 0 {
		groups = append(groups, last)
	}
	slices.SortStableFunc(groups, func(a, b unitAddrs) int { return cmp.Compare(a.unit, b.unit) })
	var jobs [][]unitAddrs
	for len(groups) > 0 {
		n := 1
		for n < len(groups) && groups[n].unit == groups[0].unit {
			n++
		}
		jobs = append(jobs, groups[:n])
		groups = groups[n:]
	}
	return jobs
}

// defaultWorkers is the default number of units to process concurrently.
func defaultWorkers() int { return runtime.GOMAXPROCS(0) }

// worker answers lookups for one unit after the other. It reuses its buffers.
type worker struct {
	data    *Data
	raw     []byte // bytes of body's unit
	line    []byte // bytes of its line table
	abbrevs abbrevs
	table   tableOf // key of the table in abbrevs
	body    body
	loaded  bool
	trees   treeReader
	missing []place
	addrs   []uint64
	frames  []Frame // memory for results, see allocate
}

// tableOf identifies an abbreviation table.
type tableOf struct {
	file *file
	abbrevKey
}

// place is an address in a function.
type place struct {
	fn   int32
	addr uint64
}

// acquire returns the state of the unit of groups, locked and opened. The caller puts it back.
func (w *worker) acquire(groups []unitAddrs) (*state, error) {
	s := w.data.cache.get(w.data.main.unit(int(groups[0].unit)))
	w.loaded = false
	if !s.opened {
		s.opened = true
		s.err = w.open(s)
	}
	return s, s.err
}

// lookup looks up the addresses of a unit.
func (w *worker) lookup(groups []unitAddrs, addrs []uint64, out [][]Frame) error {
	s, err := w.acquire(groups)
	defer w.data.cache.put(s)
	var probs problems
	probs.add(err)
	probs.add(w.findFunctions(s, groups, addrs))
	probs.add(w.readTrees(s, groups, addrs))
	for _, group := range groups {
		for i := group.first; i < group.end; i++ {
			frames, err := w.answer(s, addrs[i])
			out[i] = frames
			probs.add(err)
		}
	}
	if s.lines != nil {
		s.lines.files = nil
	}
	return probs.err()
}

// open reads the functions and lines of a unit, which all lookups need.
func (w *worker) open(s *state) error {
	s.body = s.unit
	s.names = map[ref]*Function{}
	s.bytes = stateSize
	s.whole = true // unless it can be read, there is nothing more to find
	b, err := w.load(s)
	if err != nil {
		return err
	}
	if err := s.unit.readRootOf(b); err != nil {
		return err
	}
	var probs problems
	if s.unit.root.hasLine {
		s.lines, w.line, err = s.unit.readLines(w.line)
		probs.add(err)
		if s.lines != nil {
			s.bytes += s.lines.bytes()
		}
	}
	if s.unit.root.dwoName != "" {
		body, err := w.data.splitUnit(s.unit)
		if body == nil {
			probs.add(err)
			return probs.err()
		}
		s.body = body
		w.loaded = false
	}
	probs.add(w.functions(s, false))
	return probs.err()
}

// functions finds the functions of the unit.
func (w *worker) functions(s *state, whole bool) error {
	s.whole = whole
	b, err := w.load(s)
	if err != nil {
		s.whole = true
		return err
	}
	for i := range s.funcs {
		if t := s.funcs[i].tree; t != nil {
			s.bytes -= t.size()
		}
	}
	s.bytes -= s.index.bytes() + functionSize*cap(s.funcs)
	var spans []span
	s.funcs, spans, err = b.functions(whole)
	s.index = paint(spans)
	s.bytes += s.index.bytes() + functionSize*cap(s.funcs)
	return err
}

// load reads the bytes of the unit, unless they are loaded already.
func (w *worker) load(s *state) (*body, error) {
	if w.loaded {
		return &w.body, nil
	}
	u := s.body
	// Units seldom share a table, so this bypasses the file's cache.
	if key := (tableOf{u.file, abbrevKey{u.abbrevOff, u.format}}); w.table != key {
		w.table = tableOf{}
		if err := u.file.parseAbbrevs(&w.abbrevs, u.abbrevOff, u.format, false); err != nil {
			return nil, err
		}
		w.table = key
	}
	var err error
	if w.raw, err = u.load(w.raw); err != nil {
		return nil, err
	}
	w.body = body{unit: u, abbrevs: &w.abbrevs, raw: w.raw}
	w.loaded = true
	return &w.body, nil
}

// findFunctions finds the functions at addresses. It searches types and functions only if
// they are nowhere else.
func (w *worker) findFunctions(s *state, groups []unitAddrs, addrs []uint64) error {
	for _, group := range groups {
		for _, addr := range addrs[group.first:group.end] {
			if lo, id := s.index.segment(addr); id < 0 && !s.whole && !s.padding(lo, addr) {
				return w.functions(s, true)
			}
		}
	}
	return nil
}

// readTrees reads the inlined calls at addresses that were not looked up before. If other
// addresses of the function were, it reads the function completely.
func (w *worker) readTrees(s *state, groups []unitAddrs, addrs []uint64) error {
	var probs problems
	w.missing = w.missing[:0]
	for _, group := range groups {
		for _, addr := range addrs[group.first:group.end] {
			id := s.index.find(addr)
			if id < 0 {
				continue
			}
			if t := s.funcs[id].tree; t == nil || t.find(addr) == unread {
				w.missing = append(w.missing, place{id, addr})
			}
		}
	}
	if len(w.missing) == 0 {
		return probs.err()
	}
	slices.SortFunc(w.missing, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.fn, b.fn), cmp.Compare(a.addr, b.addr))
	})
	b, err := w.load(s)
	if err != nil {
		return err
	}
	for places := w.missing; len(places) > 0; {
		id := places[0].fn
		w.addrs = w.addrs[:0]
		for len(places) > 0 && places[0].fn == id {
			w.addrs = append(w.addrs, places[0].addr)
			places = places[1:]
		}
		w.addrs = slices.Compact(w.addrs)
		fn := &s.funcs[id]
		if fn.tree != nil {
			s.bytes -= fn.tree.size()
			w.addrs = w.addrs[:0]
		}
		fn.tree, err = w.trees.read(b, fn, w.addrs)
		probs.add(err)
		s.bytes += fn.tree.size()
	}
	return probs.err()
}

// padding reports whether addr is in the padding after a function that ended at lo. A
// function there would begin with a row of the line table.
func (s *state) padding(lo, addr uint64) bool {
	if s.lines == nil {
		return false
	}
	at, ok := s.lines.find(addr)
	return ok && at.addr < lo
}

// answer returns the frames at an address.
func (w *worker) answer(s *state, addr uint64) ([]Frame, error) {
	var probs problems
	var at row
	hasRow := false
	if s.lines != nil {
		at, hasRow = s.lines.find(addr)
	}
	var t *tree
	id := int32(-1)
	depth := 0
	if fn := s.index.find(addr); fn >= 0 && s.funcs[fn].tree != nil {
		t = s.funcs[fn].tree
		id = max(0, t.find(addr))
		depth = t.depth(id)
	} else if hasRow {
		depth = 1
	}
	if depth == 0 {
		return nil, nil
	}
	frames := w.allocate(depth)
	for i := range frames {
		file, err := s.path(at.file)
		probs.add(err)
		frames[i] = Frame{File: file, Line: int32(at.line), Column: int32(at.column), Discriminator: at.discriminator}
		if t == nil {
			break
		}
		c := &t.calls[id]
		if c.function == nil {
			probs.add(w.name(s, c))
		}
		frames[i].Function = c.function
		frames[i].Inlined = c.parent >= 0
		at = row{file: c.file, line: c.line, column: c.column, discriminator: c.discriminator}
		id = c.parent
	}
	return frames, probs.err()
}

// allocate returns n frames, from a larger allocation because results are many and small.
func (w *worker) allocate(n int) []Frame {
	if cap(w.frames)-len(w.frames) < n {
		w.frames = make([]Frame, 0, max(512, n))
	}
	at := len(w.frames)
	w.frames = w.frames[:at+n]
	return w.frames[at : at+n : at+n]
}

// name finds the function of a call.
func (w *worker) name(s *state, c *call) error {
	if c.function = s.names[c.origin]; c.function != nil {
		return nil
	}
	b, err := w.load(s)
	if err != nil {
		c.function = &Function{}
		return err
	}
	c.function, err = b.function(c.origin)
	s.names[c.origin] = c.function
	s.bytes += nameSize + len(c.function.Name)
	return err
}

// path returns the path of a file in the unit's line table.
func (s *state) path(file uint32) (string, error) {
	if s.lines == nil {
		return "", nil
	}
	return s.lines.path(s.unit, file)
}
