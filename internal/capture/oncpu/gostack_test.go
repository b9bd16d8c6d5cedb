package oncpu

import (
	"debug/elf"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
)

// knowledge returns the part of a reference walk that the call frame information makes
// reliable. Its arguments are the reference walk and the frames that the kernel side
// found.
type knowledge func(frames []unwind.Frame, end unwind.End, got []unwind.Frame) ([]unwind.Frame, unwind.End)

// all is for programs whose call frame information is correct throughout.
func all(frames []unwind.Frame, end unwind.End, _ []unwind.Frame) ([]unwind.Frame, unwind.End) {
	return frames, end
}

// stackSwitches are functions of the Go runtime that switch stacks. Their call frame
// information does not describe the switch.
var stackSwitches = []string{
	"runtime.asmcgocall", "runtime.cgocallback", "runtime.mcall", "runtime.morestack",
	"runtime.mstart", "runtime.rt0_go", "runtime.systemstack",
}

// untilSwitch is for Go programs. Their call frame information is reliable up to a switch
// of stacks. The kernel side follows frame pointers, so it misses the caller of the
// innermost function if that function has no frame. In a signal handler, it also misses
// the caller of the interrupted function.
func untilSwitch(t *testing.T, program string) knowledge {
	t.Helper()
	symbols := testenv.Symbols(t, program)
	symbols = slices.DeleteFunc(symbols, func(s elf.Symbol) bool {
		return !slices.Contains(stackSwitches, strings.TrimSuffix(s.Name, ".abi0"))
	})
	switches := func(f unwind.Frame) bool {
		return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return f.PC-s.Value <= s.Size })
	}
	return func(frames []unwind.Frame, _ unwind.End, got []unwind.Frame) ([]unwind.Frame, unwind.End) {
		if i := slices.IndexFunc(frames, switches); i >= 0 {
			frames = frames[:i+1]
		}
		frames = slices.Clone(frames)
		for at := range frames {
			if !frames[at].Exact {
				continue
			}
			callers := frames[at+1:]
			unseen := 1
			if i := slices.IndexFunc(callers, func(f unwind.Frame) bool { return f.Exact }); i == 1 {
				unseen = 3 // the trampoline, the interrupted function, and its caller
			}
			for n := 1; n <= min(unseen, len(callers)) && !startsWith(callers, got, at+1); n++ {
				if startsWith(callers[n:], got, at+1) {
					return slices.Delete(frames, at+1, at+1+n), unwind.EndNoTable
				}
			}
		}
		return frames, unwind.EndNoTable
	}
}

// startsWith reports whether got[at] is callers[0]. It is true if callers is empty.
func startsWith(callers, got []unwind.Frame, at int) bool {
	return len(callers) == 0 || at < len(got) && callers[0] == got[at]
}
