package pprof

import "fulgur/internal/profile"

// locations gives the frames of a profile what pprof calls locations.
type locations struct {
	p *profile.Profile
	// ofStack holds for each stack the run of frames that ends in it.
	ofStack []runID
	runs    []run
	// ids holds the identifiers of the locations by run, as it is where a
	// stack was sampled or interrupted and where it was called from; 0 is
	// none yet.
	ids [][2]uint32
	// places are the locations in the order of their identifiers, from 1.
	places []place
	// path is what stack returned last.
	path []uint32
}

// A run is a frame and, towards the root, the frames that it is inlined into:
// a location's lines.
type run struct {
	// outer is the run that ends in the frame that this one is inlined into,
	// 0 if frame is not inlined.
	outer runID
	frame profile.FrameID
}

// runID indexes locations.runs; 0 is no run.
type runID uint32

// place is what makes a location.
type place struct {
	run    runID
	caller bool
}

// newLocations relies on a stack's identifier being larger than its parent's.
func newLocations(p *profile.Profile) *locations {
	l := &locations{p: p, ofStack: make([]runID, len(p.Stacks)), runs: make([]run, 1)}
	known := make(map[run]runID, len(p.Frames))
	for i := 1; i < len(p.Stacks); i++ {
		s := p.Stacks[i]
		r := run{frame: s.Frame}
		if p.Frames[s.Frame].Inlined {
			r.outer = l.ofStack[s.Parent]
		}
		id, ok := known[r]
		if !ok {
			id = runID(len(l.runs))
			known[r] = id
			l.runs = append(l.runs, r)
		}
		l.ofStack[i] = id
	}
	l.ids = make([][2]uint32, len(l.runs))
	return l
}

// stack returns the identifiers of the locations of s, leaf first, which are
// valid until the next call.
func (l *locations) stack(s profile.StackID) []uint32 {
	l.path = l.path[:0]
	callee := profile.KindMarker
	for s != 0 {
		id := l.ofStack[s]
		kind := l.p.Frames[l.p.Stacks[s].Frame].Kind
		// The outermost user frame under kernel frames is where the thread
		// was interrupted, no call.
		entry := callee == profile.KindKernel && kind != profile.KindKernel
		l.path = append(l.path, l.id(place{id, len(l.path) > 0 && !entry}))
		// Pass the frames of the run; all are of one kind.
		for r := id; r != 0; r = l.runs[r].outer {
			s = l.p.Stacks[s].Parent
		}
		callee = kind
	}
	return l.path
}

// id returns the identifier of the location at a place.
func (l *locations) id(at place) uint32 {
	which := 0
	if at.caller {
		which = 1
	}
	id := &l.ids[at.run][which]
	if *id == 0 {
		l.places = append(l.places, at)
		*id = uint32(len(l.places))
	}
	return *id
}
