package unwindtest

import (
	"debug/elf"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/unwind"
)

// stackSwitches are functions of the Go runtime that switch stacks, or begin them. Debuggers do not
// know that, and continue with the wrong stack, or with whatever is above its end.
var stackSwitches = []string{
	"runtime.asmcgocall", "runtime.cgocallback", "runtime.goexit", "runtime.mcall", "runtime.morestack",
	"runtime.mstart", "runtime.rt0_go", "runtime.systemstack", "runtime.nanotime1", "time.now",
	"runtime.vgetrandom1", "runtime.gogo", "gogo",
}

// Cut cuts a stack and the stacks that debuggers found for it to what they can know.
type Cut func(frames []unwind.Frame, theirs map[string][]uint64) ([]unwind.Frame, map[string][]uint64)

// Cut returns the function that cuts the stacks of the program, which was built.
func (p *Program) Cut(t *testing.T, program string) Cut {
	t.Helper()
	if p.tool != "go" {
		return func(frames []unwind.Frame, theirs map[string][]uint64) ([]unwind.Frame, map[string][]uint64) {
			return frames, theirs
		}
	}
	symbols := slices.DeleteFunc(testenv.Symbols(t, program), func(s elf.Symbol) bool {
		return !slices.Contains(stackSwitches, strings.TrimSuffix(s.Name, ".abi0"))
	})
	switches := func(f unwind.Frame) bool {
		return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return f.Lookup()-s.Value < s.Size })
	}
	return func(frames []unwind.Frame, theirs map[string][]uint64) ([]unwind.Frame, map[string][]uint64) {
		i := slices.IndexFunc(frames, switches)
		if i < 0 {
			return frames, theirs
		}
		cut := map[string][]uint64{}
		for name, stack := range theirs {
			cut[name] = stack[:min(i+1, len(stack))]
		}
		return frames[:i+1], cut
	}
}
