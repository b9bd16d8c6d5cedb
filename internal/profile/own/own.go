package own

import (
	"cmp"

	"fulgur/internal/profile"
)

// Owners has, for each stack of a profile, the frame that the values of its samples belong to.
type Owners struct {
	// Frames is indexed by stack. The frame of the empty stack is 0.
	Frames []profile.FrameID
	// Callers has the innermost script function of each stack, 0 if there is none.
	Callers []profile.FrameID
	// Scripts is set if the profile has script functions.
	Scripts bool

	classes *classes
}

// Of returns the owners of the stacks of p. The note at the end of a stack, such as "[futex]", is an
// owner, too.
func Of(p *profile.Profile) Owners {
	c := classify(p)
	o := Owners{make([]profile.FrameID, len(p.Stacks)), make([]profile.FrameID, len(p.Stacks)), c.scripts, c}
	inner := make([]profile.FrameID, len(p.Stacks)) // the innermost owner, without notes
	c.walk(func(id profile.StackID, class class, isScripted bool) {
		s := p.Stacks[id]
		inner[id], o.Callers[id] = s.Frame, o.Callers[s.Parent]
		if class == script { // a builtin function that nothing calls, too
			o.Callers[id] = s.Frame
		}
		if isScripted && class < other {
			inner[id] = inner[s.Parent]
		}
		o.Frames[id] = inner[id]
		if class == note {
			o.Frames[id] = s.Frame
		}
	})
	return o
}

// Leaves returns the leaves as owners. There are no callers.
func Leaves(p *profile.Profile) Owners {
	o := Owners{Frames: make([]profile.FrameID, len(p.Stacks)), classes: classify(p)}
	for id, s := range p.Stacks {
		o.Frames[id] = s.Frame
	}
	return o
}

// Innermost returns the innermost functions of programs as owners: neither of the kernel, nor of
// the C library or a runtime below it, nor notes. In stacks without such a function, it is the
// innermost one in user space, or else in the kernel, if possible outside the scheduler. There are no
// callers.
func Innermost(p *profile.Profile) Owners {
	c := classify(p)
	o := Owners{Frames: make([]profile.FrameID, len(p.Stacks)), Scripts: c.scripts, classes: c}
	best := make([]class, len(p.Stacks))
	c.walk(func(id profile.StackID, is class, isScripted bool) {
		s := p.Stacks[id]
		if is == script || is == runtime && !isScripted { // the runtime is the program's code
			is = other
		}
		o.Frames[id], best[id] = o.Frames[s.Parent], best[s.Parent]
		if is > note && is >= best[id] {
			o.Frames[id], best[id] = s.Frame, is
		}
	})
	return o
}

// IsProgram reports whether a frame is a function of a program: not of the kernel, the C library or
// Go's runtime, nor a note. Functions of interpreters are, because they are owners only in stacks
// without script functions.
func (o Owners) IsProgram(id profile.FrameID) bool { return o.classes.frames[id].class >= runtime }

// IsScript reports whether a frame that is an owner is a script function.
func (o Owners) IsScript(id profile.FrameID) bool {
	f := o.classes.frames[id]
	return f.class == script || f.builtin
}

// Code describes whose code a frame is, for programs that find owners themselves, such as pages: the
// class in the lowest three bits, the languages in the next four, and then whether a library that is
// linked into a runtime may contain the function, whether one does, and whether it is a builtin function.
type Code uint16

// NoCode is the code of rows that are not frames, such as processes.
const NoCode = Code(other)

// Codes returns the codes of the frames of p.
func Codes(p *profile.Profile) []Code {
	codes := make([]Code, len(p.Frames))
	for id, f := range classify(p).frames {
		codes[id] = Code(f.class) | Code(f.of)<<3
		if f.may {
			codes[id] |= 1 << 7
		}
		if f.bundled {
			codes[id] |= 1 << 8
		}
		if f.builtin {
			codes[id] |= 1 << 9
		}
	}
	return codes
}

// Rank returns the code of two that says more about a program, the larger one if they are of the same
// class.
func Rank(a, b Code) Code {
	const class = 1<<3 - 1
	if cmp.Or(cmp.Compare(a&class, b&class), cmp.Compare(a, b)) < 0 {
		return b
	}
	return a
}
