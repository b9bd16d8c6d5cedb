// Package locations groups the frames of a profile as pprof and OTLP do: a function and
// the functions inlined into it, at one address, are one location with several lines.
package locations

import "fulgur/internal/profile"

// Table holds the locations of a profile that were used so far.
type Table struct {
	p *profile.Profile
	// ofStack holds for each stack the location in which it ends.
	ofStack   []locationID
	locations []location
	// ids holds the identifiers of the locations by locationID; 0 is none yet.
	ids []uint32
	// used are the locations in the order of their identifiers, from 1.
	used   []locationID
	path   []uint32          // the last result of Stack
	frames []profile.FrameID // the last result of Frames
}

// location is a frame and, towards the root, the frames into which it is inlined: the lines of
// a location.
type location struct {
	// outer is the location of the frame into which this one is inlined, or 0 if it is not
	// inlined.
	outer locationID
	frame profile.FrameID
}

// locationID indexes Table.locations; 0 means none.
type locationID uint32

// New returns an empty table for a valid profile, see [profile.Profile.Check].
func New(p *profile.Profile) *Table {
	t := &Table{p: p, ofStack: make([]locationID, len(p.Stacks)), locations: make([]location, 1)}
	known := make(map[location]locationID, len(p.Frames))
	for i := 1; i < len(p.Stacks); i++ { // a stack follows its parent
		s := p.Stacks[i]
		l := location{frame: s.Frame}
		if p.Frames[s.Frame].Inlined {
			l.outer = t.ofStack[s.Parent]
		}
		t.ofStack[i] = profile.Intern(&t.locations, known, l)
	}
	t.ids = make([]uint32, len(t.locations))
	return t
}

// Stack returns the identifiers of the locations of s, leaf first. A location that was not
// used before gets the next one, from 1. The result is valid until the next call.
func (t *Table) Stack(s profile.StackID) []uint32 {
	t.path = t.path[:0]
	for s != 0 {
		at := t.ofStack[s]
		if t.ids[at] == 0 {
			t.used = append(t.used, at)
			t.ids[at] = uint32(len(t.used))
		}
		t.path = append(t.path, t.ids[at])
		for ; at != 0; at = t.locations[at].outer {
			s = t.p.Stacks[s].Parent
		}
	}
	return t.path
}

// Len returns the number of locations used, which is the highest identifier.
func (t *Table) Len() int { return len(t.used) }

// Frames returns the frames of the location with the given identifier, the innermost
// first. They share an address and a mapping. The result is valid until the next call.
func (t *Table) Frames(id uint32) []profile.FrameID {
	t.frames = t.frames[:0]
	for at := t.used[id-1]; at != 0; at = t.locations[at].outer {
		t.frames = append(t.frames, t.locations[at].frame)
	}
	return t.frames
}
