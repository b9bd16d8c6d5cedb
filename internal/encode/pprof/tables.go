package pprof

import (
	"strings"

	pb "github.com/google/pprof/profile"

	"fulgur/internal/profile"
)

// tables turn the tables of a profile into those of pprof.
type tables struct {
	p *profile.Profile
	// mappings and functions have the indices of the profile's; the first of
	// each is nil.
	mappings  []*pb.Mapping
	functions []*pb.Function
	locations []*pb.Location

	// runs holds for each stack the run of frames that ends in it: see run.
	runs []runID
	run  []run
	// made holds the locations by run and by whether it is a caller.
	made map[place]*pb.Location
	// path is scratch for stack.
	path []*pb.Location
}

// A run is a frame and, towards the leaf, the frames that are inlined into
// it: what pprof calls a location.
type run struct {
	// outer is the run that ends in the frame that this one is inlined into,
	// 0 if frame is not inlined.
	outer runID
	frame profile.FrameID
}

// runID indexes tables.run; 0 is no run.
type runID uint32

// place is a location's identity.
type place struct {
	run    runID
	caller bool
}

// newTables converts all of p that does not hang on its samples. It relies on
// a stack's identifier being larger than its parent's.
func newTables(p *profile.Profile) *tables {
	t := &tables{
		p:         p,
		mappings:  make([]*pb.Mapping, 1, len(p.Mappings)),
		functions: make([]*pb.Function, 1, len(p.Functions)),
		runs:      make([]runID, len(p.Stacks)),
		run:       make([]run, 1),
		made:      map[place]*pb.Location{},
	}
	for _, m := range p.Mappings[1:] {
		t.mappings = append(t.mappings, newMapping(uint64(len(t.mappings)), m))
	}
	for _, f := range p.Functions[1:] {
		t.functions = append(t.functions, &pb.Function{
			ID:         uint64(len(t.functions)),
			Name:       utf8(f.Name),
			SystemName: utf8(f.SystemName),
			Filename:   utf8(f.File),
			StartLine:  int64(f.StartLine),
		})
	}
	ids := map[run]runID{}
	for i := 1; i < len(p.Stacks); i++ {
		s := p.Stacks[i]
		r := run{frame: s.Frame}
		if p.Frames[s.Frame].Inlined {
			r.outer = t.runs[s.Parent]
		}
		id, ok := ids[r]
		if !ok {
			id = runID(len(t.run))
			ids[r] = id
			t.run = append(t.run, r)
		}
		t.runs[i] = id
	}
	return t
}

// newMapping converts m. A mapping of a file starts at 0: the addresses in it
// are the file's own.
func newMapping(id uint64, m profile.Mapping) *pb.Mapping {
	out := &pb.Mapping{ID: id, File: utf8(m.Path), BuildID: utf8(m.BuildID)}
	if strings.HasPrefix(m.Path, "[") {
		out.Start, out.Limit, out.Offset = m.Start, m.Limit, m.Offset
	}
	return out
}

// stack returns the locations of s, leaf first.
func (t *tables) stack(s profile.StackID) []*pb.Location {
	t.path = t.path[:0]
	callee := profile.KindMarker
	for s != 0 {
		id := t.runs[s]
		// Pass the frames of the run; all are of one kind.
		depth := 0
		for r := id; r != 0; r = t.run[r].outer {
			depth++
		}
		kind := t.p.Frames[t.p.Stacks[s].Frame].Kind
		// The outermost user frame under kernel frames is where the thread
		// was interrupted, no call.
		entry := callee == profile.KindKernel && kind != profile.KindKernel
		t.path = append(t.path, t.location(place{id, len(t.path) > 0 && !entry}))
		for range depth {
			s = t.p.Stacks[s].Parent
		}
		callee = kind
	}
	return append([]*pb.Location(nil), t.path...)
}

// location returns the location at, making it if it is new.
func (t *tables) location(at place) *pb.Location {
	if l, ok := t.made[at]; ok {
		return l
	}
	f := t.p.Frames[t.run[at.run].frame]
	l := &pb.Location{
		ID:      uint64(len(t.locations) + 1),
		Mapping: t.mappings[f.Mapping],
		Address: f.Address,
	}
	if at.caller && l.Address > 0 {
		l.Address--
	}
	for r := at.run; r != 0; r = t.run[r].outer {
		f := t.p.Frames[t.run[r].frame]
		if f.Function == 0 {
			continue
		}
		l.Line = append(l.Line, pb.Line{Function: t.functions[f.Function], Line: int64(f.Line)})
	}
	t.note(l)
	t.locations = append(t.locations, l)
	t.made[at] = l
	return l
}

// note records in l's mapping what is known of the code in it, so that pprof
// does not look it up again.
func (t *tables) note(l *pb.Location) {
	m := l.Mapping
	if m == nil || len(l.Line) == 0 {
		return
	}
	m.HasFunctions = true
	m.HasInlineFrames = m.HasInlineFrames || len(l.Line) > 1
	for _, line := range l.Line {
		m.HasFilenames = m.HasFilenames || line.Function.Filename != ""
		m.HasLineNumbers = m.HasLineNumbers || line.Line != 0
	}
}
