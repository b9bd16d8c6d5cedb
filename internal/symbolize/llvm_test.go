package symbolize

import (
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/elffile"
)

// TestLLVMSymbolizer compares random addresses in the code of files without
// debug info with llvm-symbolizer. Both know a name for the same addresses, and
// it is that of the same symbol or of an alias, but for the stubs of the
// procedure linkage table, which LLVM does not name, or after what lies before.
func TestLLVMSymbolizer(t *testing.T) {
	const perFile = 10000
	for _, path := range []string{
		"/usr/bin/bash",
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
		compile(t, "a.cc", cxxSource, "g++", "-O1", "-static", "-o", "OUT", "IN"),
	} {
		t.Run(path, func(t *testing.T) {
			e := openFile(t, path, Options{NoDemangle: true})
			addrs := randomAddresses(t, e, perFile)
			frames, err := e.LookupBatch(addrs)
			if err != nil {
				t.Fatal(err)
			}
			var stdin strings.Builder
			for _, a := range addrs {
				fmt.Fprintf(&stdin, "%#x\n", a)
			}
			want := strings.Split(run(t, stdin.String(), "llvm-symbolizer",
				"--functions=linkage", "--no-inlines", "--no-demangle", "--output-style=GNU", "-e", path), "\n")
			aliases := startsByName(t, path)
			same, alias, stubs := 0, 0, 0
			for i, addr := range addrs {
				name := want[2*i] // a line with the place in the source follows
				switch {
				case len(frames[i]) == 1 && strings.HasSuffix(frames[i][0].SystemName, pltSuffix):
					stubs++ // of which LLVM knows nothing
				case len(frames[i]) == 0 && name == "??":
				case len(frames[i]) == 0:
					t.Errorf("%#x: nothing, llvm-symbolizer says %s", addr, name)
				case frames[i][0].SystemName == name:
					same++
				case slices.Contains(aliases[name], addr-frames[i][0].Offset):
					alias++
				default:
					t.Errorf("%#x: %s+%#x, llvm-symbolizer says %s", addr, frames[i][0].SystemName, frames[i][0].Offset, name)
				}
			}
			t.Logf("%d addresses: %d same, %d aliases, %d stubs", len(addrs), same, alias, stubs)
		})
	}
}

// randomAddresses returns n sorted addresses in e's code, spread over its
// sections by their size, at least 50 in each.
func randomAddresses(t *testing.T, e *ELF, n int) []uint64 {
	t.Helper()
	sections, err := e.File().Sections()
	if err != nil {
		t.Fatal(err)
	}
	total := uint64(0)
	code := slices.DeleteFunc(slices.Clone(sections), func(s *elffile.Section) bool { return s.Flags&elf.SHF_EXECINSTR == 0 })
	for _, s := range code {
		total += s.Size
	}
	random := rand.New(rand.NewPCG(1, 2))
	var addrs []uint64
	for _, s := range code {
		for range max(50, uint64(n)*s.Size/total) {
			addrs = append(addrs, s.Addr+random.Uint64N(s.Size))
		}
	}
	slices.Sort(addrs)
	return addrs
}

// startsByName returns where nm shows symbols of a name.
func startsByName(t *testing.T, path string) map[string][]uint64 {
	t.Helper()
	starts := map[string][]uint64{}
	for _, table := range []string{"-a", "-D"} {
		for line := range strings.Lines(run(t, "", "nm", table, path)) {
			f := strings.Fields(line)
			if len(f) != 3 {
				continue
			}
			addr, err := strconv.ParseUint(f[0], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(f[2], "@")
			starts[name] = append(starts[name], addr)
		}
	}
	return starts
}
