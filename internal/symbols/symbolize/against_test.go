package symbolize

import (
	"context"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"fulgur/internal/symbols/debugfile/debugfiletest"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// Classes of differences from other symbolizers. docs/symbols.md explains them.
const (
	same = "same"
	// The address is in a stub of the procedure linkage table. Others show no name, or
	// the function before it.
	stub = "stub"
	// The outermost function has several names, and the other symbolizer shows another
	// one.
	alias = "alias"
	// The address is in no function but in alignment, a table within the code, or the
	// head of a procedure linkage table. Others show the function before it, or a line.
	between = "between functions"
	// fulgur knows no line. The other symbolizer shows the file from the symbol table,
	// which has no directories, or no file.
	lineless = "no line"
	// The outermost function is a part or a copy made by the compiler. For "name.cold",
	// the other symbolizer shows the name in the source.
	clone = "part or copy"
	// The other symbolizer shows an assembler label inside a function instead of the
	// function.
	label = "label"
	// addr2line shows another path of the same file: with repeated directories, or with
	// the directory of GCC's LTO, which does not exist.
	directory = "path"
	// addr2line differs, and llvm-symbolizer agrees with fulgur.
	alone      = "addr2line alone"
	unexpected = "UNEXPECTED"
)

// classes lists all classes, in the order of tables.
var classes = []string{same, alias, clone, stub, between, label, lineless, directory, alone, unexpected}

// classify returns the class of the difference from another symbolizer.
func classify(got []Frame, want []place, addr uint64, symbols *symbolSet, startLines bool) string {
	switch {
	case len(got) == 1 && strings.HasSuffix(got[0].SystemName, pltSuffix):
		return stub
	case len(got) == 0 && len(want) == 0:
		return same
	case len(got) == 0 && symbols.between(addr):
		return between
	case len(got) != len(want):
		return unexpected
	}
	class := same
	for i, g := range got {
		w := want[i]
		if g.Line != w.line || startLines && g.StartLine != w.startLine {
			return unexpected
		}
		if g.File != w.file {
			switch {
			case w.line == 0 && i == 0:
				class = lineless
			case g.File != "" && strings.HasSuffix(w.file, "/"+strings.TrimPrefix(g.File, "./")), strings.HasSuffix(w.file, "/<artificial>"):
				class = directory
			default:
				return unexpected
			}
		}
		if g.SystemName == w.name {
			continue
		}
		switch {
		case g.Inlined:
			return unexpected
		case symbols.startsAt(w.name, addr-g.Offset):
			class = alias
		case strings.HasPrefix(g.SystemName, w.name+"."):
			class = clone
		case symbols.startsIn(w.name, addr-g.Offset, addr):
			class = label
		default:
			return unexpected
		}
	}
	return class
}

// compareTools looks up n random addresses in the code of the file at path and compares
// the frames with llvm-symbolizer and addr2line. It logs a table row for each tool.
func compareTools(t *testing.T, path string, n int) {
	t.Helper()
	e := openFile(t, path, Options{NoDemangle: true})
	e.Search(context.Background(), debugfiletest.NewFinder(t), "/", path)
	addrs := randomAddresses(t, e, n)
	got, err := e.LookupBatch(addrs)
	if err != nil {
		t.Error(err)
	}
	for i, found := range got {
		if len(found) > 0 && found[0].NoSymbol {
			got[i] = nil // the tools do not know such functions
		}
	}
	// Given the binary too, the tools would use only its symbols.
	files := []string{path}
	if e.opened.file != nil {
		files = append(files, e.opened.file.Path)
	}
	asked := files[len(files)-1]
	symbols := readSymbols(t, files...)
	byLLVM, byAddr2line := askLLVM(t, asked, addrs), askAddr2line(t, asked, addrs)

	counts := map[string]map[string]int{"llvm-symbolizer": {}, "addr2line -i": {}}
	for i, addr := range addrs {
		class := classify(got[i], byLLVM[i], addr, symbols, true)
		counts["llvm-symbolizer"][class]++
		if class == unexpected && counts["llvm-symbolizer"][class] <= 10 {
			t.Errorf("%#x: got %+v\nwant llvm-symbolizer's %+v", addr, got[i], byLLVM[i])
		}
		other := classify(got[i], byAddr2line[i], addr, symbols, false)
		if other == unexpected && class != unexpected {
			other = alone
		}
		counts["addr2line -i"][other]++
	}
	for _, tool := range []string{"llvm-symbolizer", "addr2line -i"} {
		row := fmt.Sprintf("%s | %s | %d", filepath.Base(path), tool, len(addrs))
		for _, class := range classes[:len(classes)-1] {
			row += fmt.Sprintf(" | %d", counts[tool][class])
		}
		t.Log(row)
	}
	// The addresses are the same in each run, so this depends only on the file and the tool.
	if counts["llvm-symbolizer"][same] < len(addrs)/2 {
		t.Errorf("only %d of %d addresses have the same frames", counts["llvm-symbolizer"][same], len(addrs))
	}
}

// randomAddresses returns n sorted addresses in e's code, distributed by section size, at
// least 50 per section.
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

// TestAgainstTools compares with llvm-symbolizer and addr2line at random addresses of
// small programs and of Debian's files.
func TestAgainstTools(t *testing.T) {
	const source = "../../../bench/workload/recurse.cpp"
	for _, program := range []struct {
		name string
		path func(t *testing.T) string
	}{
		{"without symbols", installed("/usr/bin/bash")},
		{"dynsym", installed("/usr/lib/*/libstdc++.so.6")},
		{"static", build("g++", "-O2", "-static", source)},
		{"g++", build("g++", "-O2", "-g", source)},
		{"clang++", build("clang++-19", "-O2", "-g", source)},
	} {
		t.Run(program.name, func(t *testing.T) {
			t.Parallel()
			addresses := 1000
			if testenv.IsLong() {
				addresses = 3000
			}
			compareTools(t, program.path(t), addresses)
		})
	}
}

// TestAgainstToolsLong is like TestAgainstTools for large programs: Debian's, if
// their debug packages are installed, and programs built here.
func TestAgainstToolsLong(t *testing.T) {
	testenv.Long(t)
	for _, program := range []struct {
		name string
		path func(t *testing.T) string
	}{
		{"C++ by GCC", buildTemplates("g++")},
		{"C++ by clang", buildTemplates("clang++-19")},
		{"Rust", build("rustc", "-O", "-g", "testdata/words.rs")},
		{"libc6-dbg", installed("/usr/lib/*/libc.so.6")},
		{"libstdc++6-12-dbg", installed("/usr/lib/*/debug/libstdc++.so.6")},
		{"libstdc++6", installed("/usr/lib/*/libstdc++.so.6")},
		{"python3.11-dbg", installed("/usr/bin/python3.11")},
		{"libpython3.11-dbg", installed("/usr/lib/*/libpython3.11.so.1.0")},
		{"node", installed("/usr/bin/node")},
	} {
		t.Run(program.name, func(t *testing.T) { compareTools(t, program.path(t), 20000) })
	}
}

// installed returns the file that matches pattern. The test is skipped if there is none.
func installed(pattern string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 {
			testenv.Skip(t, "needs an installed file: %s", pattern)
		}
		return found[0]
	}
}

// build returns a program built by the command, called with -o.
func build(argv ...string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		out := filepath.Join(t.TempDir(), "program")
		run(t, "", argv[0], append([]string{"-o", out}, argv[1:]...)...)
		return out
	}
}

// buildTemplates returns the program built from bench/workload/templates.cpp.
func buildTemplates(compiler string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		const units = 4
		dir := t.TempDir()
		path := testenv.Tool(t, compiler)
		var objects []string
		var jobs sync.WaitGroup
		for i := range units {
			object := filepath.Join(dir, fmt.Sprint(i, ".o"))
			objects = append(objects, object)
			jobs.Go(func() {
				cmd := exec.Command(path, "-std=c++17", "-O2", "-g", "-w", fmt.Sprint("-DUNIT=", i), fmt.Sprint("-DUNITS=", units),
					"-c", "-o", object, "../../../bench/workload/templates.cpp")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", cmd, err, out)
				}
			})
		}
		jobs.Wait()
		return build(append([]string{compiler}, objects...)...)(t)
	}
}
