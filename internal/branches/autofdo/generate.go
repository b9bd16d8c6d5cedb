package autofdo

import (
	"context"
	"iter"
	"maps"
	"slices"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/autofdo/sampleprof"
	"fulgur/internal/symbols/disasm"
	"fulgur/internal/symbols/dwarf"
)

// Program is the profiled program or library.
type Program struct {
	// Code is its machine code.
	Code *bolt.Code
	// Debug is its debug information.
	Debug *dwarf.Data
	// SymbolsAt returns the names of all symbols that begin at addresses.
	SymbolsAt func(addrs []uint64) (map[uint64][]string, error)
	// Flow is whether its discriminators are flow-sensitive.
	Flow bool
}

// Stats counts the input of [Program.Profile].
type Stats struct {
	// Counted is the number of times that code ran without a branch between two recorded
	// branches. Impossible is the number of such records left out because the code between
	// the branches cannot run without another branch.
	Counted, Impossible uint64
}

const (
	// maxStraight bounds straight-line code, in bytes.
	maxStraight = 1 << 20
	// batch is the number of addresses to look up at a time.
	batch = 1 << 14
)

// Profile returns the profile of the program. The traces may be in any order; sorting them by
// From and To saves memory. If debug information is malformed, the error is a [DebugError],
// and the profile lacks the code that it describes.
func (p Program) Profile(ctx context.Context, traces iter.Seq2[bolt.Trace, error]) (*sampleprof.Profile, Stats, error) {
	g := &generator{ctx: ctx, program: p, begins: map[uint64]uint64{}, ends: map[uint64]uint64{}, entries: map[uint64]string{}}
	g.profile.Flow = p.Flow
	if err := g.readTraces(traces); err != nil {
		return nil, g.stats, err
	}
	if err := g.countCode(); err != nil {
		return nil, g.stats, err
	}
	g.raiseCalls()
	if g.problem != nil {
		return &g.profile, g.stats, &DebugError{g.problem}
	}
	return &g.profile, g.stats, nil
}

// DebugError reports debug information that could not be read completely.
type DebugError struct{ err error }

// Error implements error.
func (e *DebugError) Error() string { return "debug information: " + e.err.Error() }

// Unwrap returns the cause.
func (e *DebugError) Unwrap() error { return e.err }

// generator makes a profile.
type generator struct {
	ctx     context.Context
	program Program
	profile sampleprof.Profile
	stats   Stats
	problem error // the first error in the debug information

	// How often straight-line code began and ended at an address, the last instruction
	// included.
	begins, ends map[uint64]uint64
	// entries holds the function that begins at the target of a branch, "" if none.
	entries map[uint64]string
	edges   []edge
}

// edge is a branch and how often it was taken. from is 0 for a branch from outside the file.
type edge struct{ from, to, count uint64 }

// note records the first error in the debug information. It returns an error only if ctx is
// done.
func (g *generator) note(err error) error {
	if g.ctx.Err() != nil {
		return g.ctx.Err()
	}
	if g.problem == nil {
		g.problem = err
	}
	return nil
}

// readTraces counts calls, and the starts and ends of straight-line code.
func (g *generator) readTraces(traces iter.Seq2[bolt.Trace, error]) error {
	for t, err := range traces {
		if err != nil {
			return err
		}
		if t.To == 0 {
			continue
		}
		if t.End != 0 {
			if g.straight(t.To, t.End) {
				g.begins[t.To] += t.Count
				g.ends[t.End] += t.Count
				g.stats.Counted += t.Count
			} else {
				g.stats.Impossible += t.Count
			}
		}
		if t.From == bolt.NoBranch {
			continue
		}
		if n := len(g.edges); n > 0 && g.edges[n-1].from == t.From && g.edges[n-1].to == t.To {
			g.edges[n-1].count += t.Count
			continue
		}
		if len(g.edges) == batch {
			if err := g.countCalls(); err != nil {
				return err
			}
		}
		g.edges = append(g.edges, edge{t.From, t.To, t.Count})
	}
	return g.countCalls()
}

// straight reports whether the code from start to the instruction at end can run without a
// branch. It may be impossible because branch records of some processors repeat or omit
// entries.
func (g *generator) straight(start, end uint64) bool {
	if start > end || end-start > maxStraight {
		return false
	}
	for addr := start; addr < end; {
		size, flow, known, err := g.program.Code.Step(addr)
		if err != nil {
			return false
		}
		if !known {
			return true // the code may be decoded wrongly from here on
		}
		if flow == disasm.Always {
			return false
		}
		addr += uint64(size)
	}
	return true
}

// countCalls counts the branches that are calls.
func (g *generator) countCalls() error {
	if err := g.findEntries(); err != nil {
		return err
	}
	var calls []edge
	var sources []uint64
	for _, e := range g.edges {
		name := g.entries[e.to]
		if name == "" {
			continue
		}
		if !ambiguous(name) {
			f := g.profile.Function(name)
			f.Head = sampleprof.Sum(f.Head, e.count)
		}
		if e.from != 0 {
			calls, sources = append(calls, e), append(sources, e.from)
		}
	}
	g.edges = g.edges[:0]
	frames, err := g.program.Debug.LookupBatch(sources)
	if err := g.note(err); err != nil {
		return err
	}
	for i, e := range calls {
		if f, at := g.leaf(frames[i], 0); f != nil {
			f.At(g.location(at)).AddTarget(g.entries[e.to], e.count)
		}
	}
	return nil
}

// findEntries finds the functions that begin at the targets of the edges.
func (g *generator) findEntries() error {
	var targets []uint64
	for _, e := range g.edges {
		if _, known := g.entries[e.to]; !known {
			targets = append(targets, e.to)
		}
	}
	slices.Sort(targets)
	targets = slices.Compact(targets)
	extents, err := g.program.Debug.Extents(targets)
	if err := g.note(err); err != nil {
		return err
	}
	var parts []uint64 // targets at which a part of a function begins
	for i, at := range targets {
		name := ""
		if e := extents[i]; e != nil && begins(e, at) && e.Function != nil && sampleprof.ValidName(e.Function.Name) {
			name = CanonicalName(e.Function.Name)
			if len(e.Ranges) > 1 {
				parts = append(parts, at)
			}
		}
		g.entries[at] = name
	}
	return g.checkParts(parts)
}

// begins reports whether a part of a function begins at addr.
func begins(e *dwarf.Extent, addr uint64) bool {
	return slices.ContainsFunc(e.Ranges, func(r [2]uint64) bool { return r[0] == addr })
}

// checkParts removes the entries at parts of functions that have no symbol with the
// function's name. Only the first part has that symbol; clang's debug information does not
// show which part is first.
func (g *generator) checkParts(parts []uint64) error {
	if len(parts) == 0 {
		return nil
	}
	symbols, err := g.program.SymbolsAt(parts)
	if err != nil {
		return err
	}
	for _, at := range parts {
		if !slices.ContainsFunc(symbols[at], func(symbol string) bool { return CanonicalName(symbol) == g.entries[at] }) {
			g.entries[at] = ""
		}
	}
	return nil
}

// location returns the position of a frame in its function, as clang looks it up.
func (g *generator) location(f *dwarf.Frame) sampleprof.Location {
	l := sampleprof.Location{Line: uint32(int(f.Line)-f.Function.StartLine) & 0xffff, Discriminator: f.Discriminator}
	if !g.program.Flow {
		l.Discriminator = baseDiscriminator(f.Discriminator)
	}
	return l
}

// leaf returns the profile of the innermost frame, and that frame. It adds total to the
// profiles of all frames. It returns nil if the function is unknown.
func (g *generator) leaf(frames []dwarf.Frame, total uint64) (f *sampleprof.Function, at *dwarf.Frame) {
	for i := range frames {
		frame := &frames[len(frames)-1-i]
		if frame.Function == nil || !sampleprof.ValidName(frame.Function.Name) {
			break
		}
		name := CanonicalName(frame.Function.Name)
		if ambiguous(name) {
			return nil, nil
		}
		if f == nil {
			f = g.profile.Function(name)
		} else {
			f = f.Call(sampleprof.Call{Location: g.location(at), Callee: name})
		}
		f.Total = sampleprof.Sum(f.Total, total)
		at = frame
	}
	return f, at
}

// instruction is an instruction and how often it was executed.
type instruction struct {
	addr, size, count uint64
}

// countCode counts the instructions of all executed functions. Instructions that were not
// executed count 0 times, so that clang recognizes cold code.
func (g *generator) countCode() error {
	spans, err := g.executed()
	if err != nil {
		return err
	}
	sweep := newSweep(g.begins, g.ends)
	var list []instruction
	for _, span := range spans {
		for addr := span[0]; addr < span[1]; {
			limit, ok := g.program.Code.Contains(addr, span[1])
			if !ok {
				break
			}
			size, _, _, err := g.program.Code.Step(addr)
			if err != nil {
				return err
			}
			in := instruction{addr: addr, count: sweep.at(addr)}
			// An instruction starts where straight-line code began.
			in.size = min(uint64(size), limit-addr, sweep.next()-addr)
			list = append(list, in)
			addr += in.size
			if len(list) == batch {
				if err := g.count(list); err != nil {
					return err
				}
				list = list[:0]
			}
		}
	}
	return g.count(list)
}

// executed returns the code of all functions with straight-line code, sorted and without
// overlaps.
func (g *generator) executed() ([][2]uint64, error) {
	seen := map[*dwarf.Extent]bool{}
	var spans [][2]uint64
	for _, m := range []map[uint64]uint64{g.begins, g.ends} {
		for addrs := range slices.Chunk(slices.Sorted(maps.Keys(m)), batch) {
			extents, err := g.program.Debug.Extents(addrs)
			if err := g.note(err); err != nil {
				return nil, err
			}
			for _, e := range extents {
				if e != nil && !seen[e] {
					seen[e] = true
					spans = append(spans, e.Ranges...)
				}
			}
		}
	}
	slices.SortFunc(spans, func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
	var limit uint64
	for i := range spans {
		spans[i][0] = max(spans[i][0], limit)
		limit = max(limit, spans[i][1])
	}
	return spans, nil
}

// count counts instructions.
func (g *generator) count(list []instruction) error {
	addrs := make([]uint64, len(list))
	for i, in := range list {
		addrs[i] = in.addr
	}
	frames, err := g.program.Debug.LookupBatch(addrs)
	if err := g.note(err); err != nil {
		return err
	}
	for i, in := range list {
		f, at := g.leaf(frames[i], sampleprof.Product(in.count, in.size))
		if f == nil {
			continue
		}
		count := in.count
		if !g.program.Flow {
			count = sampleprof.Product(count, duplicationFactor(at.Discriminator))
		}
		r := f.At(g.location(at))
		r.Samples = max(r.Samples, count)
	}
	return nil
}

// raiseCalls raises the counts of locations to the number of calls there. The count may be
// lower because the compiler moved the code of the call, or because no straight-line code is
// known there.
func (g *generator) raiseCalls() {
	for _, f := range g.profile.Functions {
		for _, r := range f.Body {
			calls := uint64(0)
			for _, n := range r.Targets {
				calls = sampleprof.Sum(calls, n)
			}
			r.Samples = max(r.Samples, calls)
		}
	}
}
