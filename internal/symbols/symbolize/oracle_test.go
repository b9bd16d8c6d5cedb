package symbolize

import (
	"debug/elf"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// place is a function at an address, from another symbolizer.
type place struct {
	name            string // linker name, empty if unknown
	file            string // empty if unknown
	line, startLine int    // 0 if unknown
}

// askLLVM returns llvm-symbolizer's functions for each address in the file at path,
// innermost first, none if there is no information.
func askLLVM(t testing.TB, path string, addrs []uint64) [][]place {
	t.Helper()
	out := json.NewDecoder(strings.NewReader(run(t, hexLines(addrs), "llvm-symbolizer-19",
		"--obj="+path, "--inlines", "--no-demangle", "--output-style=JSON", "--no-debuginfod")))
	all := make([][]place, len(addrs))
	for i := range addrs {
		var answer struct {
			Symbol []struct {
				FunctionName, FileName string
				Line, StartLine        int
			}
		}
		if err := out.Decode(&answer); err != nil {
			t.Fatal(err)
		}
		for _, s := range answer.Symbol {
			all[i] = append(all[i], place{s.FunctionName, s.FileName, s.Line, s.StartLine})
		}
	}
	return withoutUnknown(all)
}

// addr2lineFile matches a line of addr2line with a file.
var addr2lineFile = regexp.MustCompile(`^(.*):(\d+|\?)(?: \(discriminator \d+\))?$`)

// askAddr2line is like [askLLVM] for binutils' addr2line -i, which has no start lines.
func askAddr2line(t testing.TB, path string, addrs []uint64) [][]place {
	t.Helper()
	lines := strings.Split(run(t, hexLines(addrs), "addr2line", "-a", "-f", "-i", "-e", path), "\n")
	all := make([][]place, 0, len(addrs))
	for len(lines) > 1 {
		if strings.HasPrefix(lines[0], "0x") {
			all = append(all, nil)
			lines = lines[1:]
			continue
		}
		at := addr2lineFile.FindStringSubmatch(lines[1])
		if at == nil || len(all) == 0 {
			t.Fatalf("got %q from addr2line", lines[1])
		}
		p := place{name: unlessUnknown(lines[0]), file: unlessUnknown(at[1])}
		p.line, _ = strconv.Atoi(at[2]) // 0 for "?"
		all[len(all)-1] = append(all[len(all)-1], p)
		lines = lines[2:]
	}
	if len(all) != len(addrs) {
		t.Fatalf("got %d results, want %d", len(all), len(addrs))
	}
	return withoutUnknown(all)
}

// unlessUnknown returns a field of a tool's output, or "" if the tool prints that it is
// unknown.
func unlessUnknown(s string) string {
	if s == "??" {
		return ""
	}
	return s
}

// withoutUnknown removes the places of addresses without any information.
func withoutUnknown(all [][]place) [][]place {
	for i, p := range all {
		if len(p) == 1 && p[0].name == "" && p[0].line == 0 {
			all[i] = nil
		}
	}
	return all
}

// symbolSet holds the symbols of some files.
type symbolSet struct {
	starts    map[string][]uint64 // by name, without versions
	functions []symbolRange       // with a size, by start
}

type symbolRange struct{ start, end uint64 }

// readSymbols reads the symbol tables with the standard library.
func readSymbols(t testing.TB, paths ...string) *symbolSet {
	t.Helper()
	s := &symbolSet{starts: map[string][]uint64{}}
	for _, path := range paths {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		static, _ := f.Symbols() // there may be no such table
		dynamic, _ := f.DynamicSymbols()
		for _, sym := range slices.Concat(static, dynamic) {
			name, _, _ := strings.Cut(sym.Name, "@")
			s.starts[name] = append(s.starts[name], sym.Value)
			switch elf.ST_TYPE(sym.Info) {
			case elf.STT_FUNC, elf.STT_GNU_IFUNC, elf.STT_NOTYPE:
				if sym.Section != elf.SHN_UNDEF && sym.Size > 0 {
					s.functions = append(s.functions, symbolRange{sym.Value, sym.Value + sym.Size})
				}
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(s.functions, func(a, b symbolRange) int { return int(int64(a.start - b.start)) })
	return s
}

// startsAt reports whether a symbol with that name starts at addr.
func (s *symbolSet) startsAt(name string, addr uint64) bool {
	return s.startsIn(name, addr, addr)
}

// startsIn reports whether a symbol with that name starts in [from, to].
func (s *symbolSet) startsIn(name string, from, to uint64) bool {
	name, _, _ = strings.Cut(name, "@")
	return slices.ContainsFunc(s.starts[name], func(at uint64) bool { return from <= at && at <= to })
}

// between reports whether addr is outside all functions with a size.
func (s *symbolSet) between(addr uint64) bool {
	// Functions hardly overlap, so it is enough to check a few before addr.
	i, _ := slices.BinarySearchFunc(s.functions, addr+1, func(r symbolRange, addr uint64) int { return int(int64(r.start - addr)) })
	for _, r := range s.functions[max(0, i-64):i] {
		if addr < r.end {
			return false
		}
	}
	return true
}
