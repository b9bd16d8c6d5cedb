// Package annotate attributes samples to the lines and instructions of a function. It
// uses only the profile.
package annotate

import (
	"slices"

	"fulgur/internal/profile"
	"fulgur/internal/profile/own"
)

// Weight is the part of a value attributed to a place.
type Weight struct {
	// Self is the part sampled at the place, or owned by it (see package own), and Total the part
	// sampled there or in code called from there.
	Self, Total int64
}

// Line is a line of a source file. Number is 1-based, or 0 if only the file is known.
// File is empty if that is unknown too.
type Line struct {
	File   string
	Number int
}

// Place is an instruction.
type Place struct {
	Mapping profile.MappingID
	// Address is within the instruction; see [profile.Frame.Call].
	Address uint64
	// Function is the one that contains it, into which others are inlined.
	Function profile.FunctionID
}

// Counts holds the samples attributed to a function.
type Counts struct {
	Weight
	// Lines are the lines at which the function was executing or calling. A line counts
	// once for each sample, even in a recursive function.
	Lines map[Line]Weight
	// Places are the instructions, in every function into which this one was inlined. They
	// count once for each sample, too. Self includes samples of an instruction that belongs
	// to code inlined into this function. Frames that do not know the instruction are left out.
	Places map[Place]Weight
}

// Options selects the samples to count.
type Options struct {
	// Value indexes [profile.Profile.ValueTypes].
	Value int
	// Task reports whether to count a task; nil means all tasks.
	Task func(profile.TaskID) bool
	// Native counts each stack for its leaf, even if that is an interpreter's function.
	Native bool
}

// Function counts the samples of p in a function, whose frames are those for which is
// returns true.
func Function(p *profile.Profile, is func(profile.FrameID) bool, o Options) Counts {
	owners := own.Of
	if o.Native {
		owners = own.Leaves
	}
	c := counter{
		p: p, owners: owners(p).Frames, value: o.Value, is: make([]bool, len(p.Frames)),
		Counts: Counts{Lines: map[Line]Weight{}, Places: map[Place]Weight{}},
		lines:  map[Line]int{}, places: map[Place]int{},
	}
	for id := range p.Frames {
		c.is[id] = id != 0 && is(profile.FrameID(id))
	}
	// A stack's parent has a lower ID.
	has := make([]bool, len(p.Stacks))
	for id := 1; id < len(has); id++ {
		has[id] = c.is[p.Stacks[id].Frame] || has[p.Stacks[id].Parent]
	}
	for i := range p.Samples {
		s := &p.Samples[i]
		if has[s.Stack] && (o.Task == nil || o.Task(s.Task)) {
			c.add(s)
		}
	}
	return c.Counts
}

// counter counts sample by sample.
type counter struct {
	Counts
	p      *profile.Profile
	owners []profile.FrameID
	value  int
	is     []bool // by frame: whether it belongs to the function

	path   []profile.FrameID
	sample int // number of the current sample, from 1
	// lines and places hold the last sample counted there.
	lines  map[Line]int
	places map[Place]int
}

// add counts a sample.
func (c *counter) add(s *profile.Sample) {
	n := s.Values[c.value]
	c.path = c.p.AppendFrames(c.path[:0], s.Stack)
	c.sample++
	c.Total += n
	leaf := true // the frame is at the instruction that was sampled
	owner := c.owner(s.Stack)
	for i, id := range c.path {
		f := c.p.Frames[id]
		if c.is[id] {
			c.addLine(Line{c.p.Functions[f.Function].File, f.Line}, n, i == 0 || i == owner)
			if !f.AtFunction && f.Address != 0 {
				c.addPlace(Place{f.Mapping, f.Call(), c.outer(i)}, n, leaf)
			}
		}
		leaf = leaf && f.Inlined
	}
	if c.is[c.path[0]] || c.is[c.path[owner]] {
		c.Self += n
	}
}

// owner returns the index in the path of the frame that owns a stack.
func (c *counter) owner(s profile.StackID) int {
	return max(slices.Index(c.path, c.owners[s]), 0)
}

// outer returns the function into which the function of a frame of the path is inlined, or
// that function itself.
func (c *counter) outer(i int) profile.FunctionID {
	for c.p.Frames[c.path[i]].Inlined && i+1 < len(c.path) {
		i++
	}
	return c.p.Frames[c.path[i]].Function
}

func (c *counter) addLine(l Line, n int64, self bool) {
	w := c.Lines[l]
	if self {
		w.Self += n
	}
	if isNew(c.lines, l, c.sample) {
		w.Total += n
	}
	c.Lines[l] = w
}

func (c *counter) addPlace(at Place, n int64, self bool) {
	if at.Mapping == 0 || !isNew(c.places, at, c.sample) {
		return
	}
	w := c.Places[at]
	w.Total += n
	if self {
		w.Self += n
	}
	c.Places[at] = w
}

// isNew reports whether the sample was not yet counted at e, and marks it as counted. The
// stack of a recursive function may have thousands of places.
func isNew[E comparable](counted map[E]int, e E, sample int) bool {
	if counted[e] == sample {
		return false
	}
	counted[e] = sample
	return true
}
