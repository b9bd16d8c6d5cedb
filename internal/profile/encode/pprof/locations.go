package pprof

import "fulgur/internal/profile"

// locations converts the frames of a profile into pprof's locations.
type locations struct {
	p *profile.Profile
	// ofStack holds for each stack the run of frames that ends in it.
	ofStack []runID
	runs    []run
	// ids holds the identifiers of the locations by run; 0 is none yet.
	ids []uint32
	// written are the runs in the order of their locations' identifiers, from 1.
	written []runID
	// path is the last result of stack.
	path []uint32
}

// run is a frame and, towards the root, the frames into which it is inlined: the lines of
// a location.
type run struct {
	// outer is the run of the frame into which this one is inlined, or 0 if it is not
	// inlined.
	outer runID
	frame profile.FrameID
}

// runID indexes locations.runs; 0 means none.
type runID uint32

// newLocations relies on a stack's ID being larger than its parent's.
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
	l.ids = make([]uint32, len(l.runs))
	return l
}

// stack returns the location IDs of s, leaf first. They are valid until the next call.
func (l *locations) stack(s profile.StackID) []uint32 {
	l.path = l.path[:0]
	for s != 0 {
		run := l.ofStack[s]
		if l.ids[run] == 0 {
			l.written = append(l.written, run)
			l.ids[run] = uint32(len(l.written))
		}
		l.path = append(l.path, l.ids[run])
		for ; run != 0; run = l.runs[run].outer {
			s = l.p.Stacks[s].Parent
		}
	}
	return l.path
}
