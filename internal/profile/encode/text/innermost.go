package text

import (
	"regexp"
	"slices"

	"fulgur/internal/profile"
)

// waitsIn matches libraries whose functions say nothing about why a program waits, and
// runtimeCode such functions of Go. scheduler matches the kernel's functions in which all
// threads wait. The page has the same in functions.js.
var (
	waitsIn     = regexp.MustCompile(`^(libc|libpthread|ld-linux|ld-musl|libstdc\+\+|vdso)([-.].*)?$`)
	scheduler   = regexp.MustCompile(`^(__|io_|preempt_)?schedule(_|$)`)
	runtimeCode = regexp.MustCompile(`^(runtime|syscall|internal/[\w/]+)\.`)
)

// rank is how much a frame reveals about a program.
type rank uint8

// The ranks, lowest first.
const (
	rankNone      rank = iota // no function
	rankScheduler             // of the kernel's scheduler
	rankKernel                // of the kernel
	rankWaits                 // of a library that programs wait in
	rankOwn                   // of a program
)

// Innermost returns for each stack of p the innermost function of a program: neither of the kernel,
// nor of the C library or a runtime below it, nor a note. For stacks without such a function, it is the
// innermost one in user space, or else in the kernel, if possible outside the scheduler. It is 0 if there
// is no function.
func Innermost(p *profile.Profile) []profile.FrameID {
	ranks := make([]rank, len(p.Frames))
	for id := 1; id < len(p.Frames); id++ {
		ranks[id] = rankOf(p, profile.FrameID(id))
	}
	own := make([]profile.FrameID, len(p.Stacks))
	for id := 1; id < len(own); id++ {
		s := p.Stacks[id]
		own[id] = own[s.Parent]
		if r := ranks[s.Frame]; r > rankNone && r >= ranks[own[id]] {
			own[id] = s.Frame
		}
	}
	return own
}

// innermost returns the rows of p, hottest first. The self value of a row is the sum of the
// stacks in which it is the innermost function of a program.
func innermost(p *profile.Profile, value int) []row {
	rows := tally(p, value, Innermost(p))
	return sorted(rows, len(rows))
}

// endsInPrograms reports whether a stack with a value ends in a program's function.
func endsInPrograms(p *profile.Profile, value int) bool {
	waiters := p.Waiters()
	return slices.ContainsFunc(p.Samples, func(s profile.Sample) bool {
		return s.Values[value] != 0 && s.Stack != 0 && rankOf(p, p.Stacks[waiters[s.Stack]].Frame) == rankOwn
	})
}

// rankOf returns the rank of a frame.
func rankOf(p *profile.Profile, id profile.FrameID) rank {
	f := p.Frames[id]
	switch {
	case f.Kind == profile.KindMarker:
		return rankNone
	case f.Kind == profile.KindKernel && scheduler.MatchString(p.GroupName(id)):
		return rankScheduler
	case f.Kind == profile.KindKernel:
		return rankKernel
	case waitsIn.MatchString(p.ModuleName(f.Mapping)), runtimeCode.MatchString(p.GroupName(id)):
		return rankWaits
	}
	return rankOwn
}
