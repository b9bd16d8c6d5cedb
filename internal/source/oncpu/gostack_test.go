package oncpu

import (
	"debug/elf"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/unwind"
)

// knowledge returns what a walk by call frame information knows for sure, given what
// it found and what the kernel side found.
type knowledge func(frames []unwind.Frame, end unwind.End, got []unwind.Frame) ([]unwind.Frame, unwind.End)

// all is that of programs whose call frame information is right.
func all(frames []unwind.Frame, end unwind.End, _ []unwind.Frame) ([]unwind.Frame, unwind.End) {
	return frames, end
}

// stackSwitches are functions of Go's runtime that go from one stack to another: its
// call frame information does not say which.
var stackSwitches = []string{
	"runtime.asmcgocall", "runtime.cgocallback", "runtime.mcall", "runtime.morestack",
	"runtime.mstart", "runtime.rt0_go", "runtime.systemstack",
}

// untilSwitch is that of a program of Go: what is true up to where it goes to another
// stack, but for the callers of interrupted functions that have no frame, or none yet,
// where the kernel side, which goes by frame pointers, did not see them either.
func untilSwitch(t *testing.T, program string) knowledge {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	symbols = slices.DeleteFunc(symbols, func(s elf.Symbol) bool {
		return !slices.Contains(stackSwitches, strings.TrimSuffix(s.Name, ".abi0"))
	})
	switches := func(f unwind.Frame) bool {
		return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return f.PC-s.Value <= s.Size })
	}
	return func(frames []unwind.Frame, end unwind.End, got []unwind.Frame) ([]unwind.Frame, unwind.End) {
		if i := slices.IndexFunc(frames, switches); i >= 0 {
			frames, end = frames[:i+1], unwind.EndNoTable
		}
		frames = slices.Clone(frames)
		for i := 1; i < len(frames); i++ {
			if frames[i-1].Exact && (i >= len(got) || got[i] != frames[i]) {
				frames = slices.Delete(frames, i, i+1)
			}
		}
		return frames, end
	}
}
