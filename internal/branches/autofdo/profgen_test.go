package autofdo_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/bolt"
	"fulgur/internal/branches/autofdo"
	"fulgur/internal/symbols/disasm"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/symbolize"
	"fulgur/internal/testenv"
)

// profgen is the reference.
const profgen = "llvm-profgen-19"

// open opens a program with its debug information.
func open(t testing.TB, path string) (autofdo.Program, *elffile.File) {
	t.Helper()
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	e := symbolize.NewELF(f, symbolize.Options{})
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	data, err := e.Debug()
	if err != nil || data == nil {
		t.Fatalf("got debug information %v, error %v", data, err)
	}
	return autofdo.Program{Code: bolt.NewCode(f), Debug: data, SymbolsAt: e.SymbolsAt}, f
}

// span is the start and end of straight-line code, or a branch and its target.
type span struct{ from, to uint64 }

// possible makes up branches and straight-line code in the .text of a program. Straight-line
// code leads from a branch target, or from the instruction after a branch, to the next
// instruction that may branch. Branches lead from there to such starts. Some straight-line
// code is impossible, since it crosses jumps.
func possible(t *testing.T, p autofdo.Program, f *elffile.File) (branches, straight map[span]uint64) {
	t.Helper()
	text := f.Section(".text")
	b, err := f.Bytes(int64(text.Offset), text.Size, "text")
	if err != nil {
		t.Fatal(err)
	}
	code, err := disasm.Decode(elf.EM_X86_64, b, text.Addr)
	if err != nil {
		t.Fatal(err)
	}
	var starts, ends []uint64
	for _, target := range code.Targets() {
		if text.Holds(target) {
			starts = append(starts, target)
		}
	}
	instructions := code.Instructions(nil)
	for i, in := range instructions {
		if _, flow, _, err := p.Code.Step(in.Address); err != nil {
			t.Fatal(err)
		} else if flow != disasm.Straight {
			ends = append(ends, in.Address)
			if i+1 < len(instructions) && flow == disasm.Conditional {
				starts = append(starts, instructions[i+1].Address)
			}
		}
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	random := rand.New(rand.NewPCG(17, 2))
	branches, straight = map[span]uint64{}, map[span]uint64{}
	for range 1500 {
		to := starts[random.IntN(len(starts))]
		i, _ := slices.BinarySearch(ends, to)
		if i+2 >= len(ends) {
			continue
		}
		straight[span{to, ends[i+random.IntN(3)]}] += 1 + random.Uint64N(1000)
		branches[span{ends[random.IntN(len(ends))], to}] += 1 + random.Uint64N(1000)
	}
	return branches, straight
}

// unsymbolized returns the input of llvm-profgen --unsymbolized-profile. Addresses are
// relative to the first executable segment.
func unsymbolized(f *elffile.File, branches, straight map[span]uint64) []byte {
	base := uint64(0)
	for _, s := range f.Segments() {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 {
			base = s.Addr &^ 0xfff
			break
		}
	}
	var b bytes.Buffer
	for _, part := range []struct {
		m  map[span]uint64
		by string
	}{{straight, "-"}, {branches, "->"}} {
		fmt.Fprintln(&b, len(part.m))
		for s, n := range part.m {
			fmt.Fprintf(&b, "%x%s%x:%d\n", s.from-base, part.by, s.to-base, n)
		}
	}
	return b.Bytes()
}

// possibleOnly removes straight-line code that crosses a jump. llvm-profgen does so when it
// reads branch records.
func possibleOnly(p autofdo.Program, straight map[span]uint64) {
	maps.DeleteFunc(straight, func(s span, _ uint64) bool {
		for at := s.from; at < s.to; {
			size, flow, _, err := p.Code.Step(at)
			if err != nil || flow == disasm.Always {
				return true
			}
			at += uint64(size)
		}
		return false
	})
}

// LLVM's own tool makes the same profile from the same branches, line by line.
func TestAgainstProfgen(t *testing.T) {
	judge := testenv.Tool(t, profgen)
	for name, flags := range map[string][]string{
		"clang":          {"clang++-19", "-O2", "-g", "-fdebug-info-for-profiling"},
		"vectorized":     {"clang++-19", "-O3", "-mavx2", "-g", "-gdwarf-4", "-fdebug-info-for-profiling"},
		"line tables":    {"clang++-19", "-O2", "-gline-tables-only", "-fdebug-info-for-profiling"},
		"flow-sensitive": {"clang++-19", "-O2", "-g", "-fdebug-info-for-profiling", "-mllvm", "-enable-fs-discriminator"},
		"many parts":     {"clang++-19", "-O2", "-g", "-fdebug-info-for-profiling", "-fbasic-block-sections=all"},
		"gcc":            {"g++", "-O2", "-g", "-freorder-blocks-and-partition"},
	} {
		t.Run(name, func(t *testing.T) {
			path := testenv.Compile(t, "shapes", flags[0], append(flags[1:], "testdata/shapes.cc")...)
			p, f := open(t, path)
			p.Flow = name == "flow-sensitive"
			branches, straight := possible(t, p, f)
			var traces []bolt.Trace
			for s, n := range branches {
				traces = append(traces, bolt.Trace{From: s.from, To: s.to, Count: n})
			}
			for s, n := range straight {
				traces = append(traces, bolt.Trace{From: bolt.NoBranch, To: s.from, End: s.to, Count: n})
			}
			ours, stats, err := p.Profile(t.Context(), func(yield func(bolt.Trace, error) bool) {
				for _, trace := range traces {
					if !yield(trace, nil) {
						return
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			all := len(straight)
			possibleOnly(p, straight)
			if stats.Impossible == 0 || all == len(straight) {
				t.Errorf("got %d impossible fall-throughs, want some", stats.Impossible)
			}
			dir := t.TempDir()
			in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
			if err := os.WriteFile(in, unsymbolized(f, branches, straight), 0o600); err != nil {
				t.Fatal(err)
			}
			if text, err := exec.Command(judge, "--format", "text", "--unsymbolized-profile", in, "--binary", path, "-o", out).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			want, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(want, []byte("\n")); n < 90 {
				t.Errorf("got only %d lines from %s", n, profgen)
			}
			var got bytes.Buffer
			if err := ours.WriteText(&got); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); d != "" {
				t.Errorf("(-%s +fulgur):\n%s", profgen, d)
			}
		})
	}
}
