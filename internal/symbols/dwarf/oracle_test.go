package dwarf

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// openSections reads the debug sections of an ELF file, or of a .dwo or .dwp
// file if suffix is ".dwo".
func openSections(t testing.TB, path, suffix string) *Sections {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	get := func(name string) Section {
		s := f.Section(name)
		if s == nil || s.Type == elf.SHT_NOBITS {
			return nil
		}
		if s.Flags&elf.SHF_COMPRESSED != 0 {
			data, err := s.Data()
			if err != nil {
				t.Fatal(err)
			}
			return bytes.NewReader(data)
		}
		return io.NewSectionReader(s.ReaderAt, 0, int64(s.Size))
	}
	return &Sections{
		Name:       filepath.Base(path),
		Info:       get(".debug_info" + suffix),
		Abbrev:     get(".debug_abbrev" + suffix),
		Aranges:    get(".debug_aranges"),
		Line:       get(".debug_line" + suffix),
		LineStr:    get(".debug_line_str"),
		Str:        get(".debug_str" + suffix),
		StrOffsets: get(".debug_str_offsets" + suffix),
		Addr:       get(".debug_addr"),
		Ranges:     get(".debug_ranges"),
		RngLists:   get(".debug_rnglists" + suffix),
		CUIndex:    get(".debug_cu_index"),
	}
}

// textAddresses returns every step-th address of a file's code.
func textAddresses(t testing.TB, path string, step uint64) []uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var addrs []uint64
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_EXECINSTR == 0 {
			continue
		}
		for a := s.Addr; a < s.Addr+s.Size; a += step {
			addrs = append(addrs, a)
		}
	}
	slices.Sort(addrs)
	return addrs
}

// randomAddresses returns n sorted random addresses of a file's code.
func randomAddresses(t testing.TB, path string, n int) []uint64 {
	t.Helper()
	all := textAddresses(t, path, 1)
	rnd := rand.New(rand.NewSource(1))
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:min(n, len(all))]
	slices.Sort(all)
	return all
}

// symbolNames finds the names that the symbol table has for the function at an address.
type symbolNames struct {
	starts []uint64
	names  map[uint64][]string
}

func readSymbolNames(t testing.TB, path string) *symbolNames {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &symbolNames{names: map[uint64][]string{}}
	table, _ := f.Symbols()
	dynamic, _ := f.DynamicSymbols()
	for _, sym := range append(table, dynamic...) {
		if typ := elf.ST_TYPE(sym.Info); typ == elf.STT_FUNC || typ == elf.STT_NOTYPE || typ == elf.STT_GNU_IFUNC {
			s.names[sym.Value] = append(s.names[sym.Value], sym.Name)
		}
	}
	for a := range s.names {
		s.starts = append(s.starts, a)
	}
	slices.Sort(s.starts)
	return s
}

func (s *symbolNames) at(addr uint64) []string {
	i := sort.Search(len(s.starts), func(i int) bool { return s.starts[i] > addr })
	if i == 0 {
		return nil
	}
	return s.names[s.starts[i-1]]
}

// hexLines formats addresses for the tools' input.
func hexLines(addrs []uint64) io.Reader {
	var b bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&b, "%#x\n", a)
	}
	return &b
}

// llvmFrame is a frame from llvm-symbolizer.
type llvmFrame struct {
	Column, Line, StartLine int
	FileName, FunctionName  string
}

// llvmSymbolize returns llvm-symbolizer's frames for each address.
func llvmSymbolize(t testing.TB, path string, addrs []uint64, args ...string) [][]llvmFrame {
	t.Helper()
	tool := testenv.Tool(t, "llvm-symbolizer-19")
	cmd := exec.Command(tool, append([]string{
		"--obj=" + path, "--inlines",
		"--no-demangle", "--output-style=JSON", "--no-debuginfod",
	}, args...)...)
	cmd.Stdin = hexLines(addrs)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	all := make([][]llvmFrame, 0, len(addrs))
	for range addrs {
		var answer struct{ Symbol []llvmFrame }
		if err := dec.Decode(&answer); err != nil {
			t.Fatal(err)
		}
		all = append(all, answer.Symbol)
	}
	return all
}

// compareLLVM looks up addresses and compares all fields of the frames with
// llvm-symbolizer's. It reports up to 10 differences and returns the number of addresses
// that differ.
func compareLLVM(t testing.TB, path string, d *Data, addrs []uint64) int {
	t.Helper()
	got, err := d.LookupBatch(addrs)
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	if !slices.ContainsFunc(got, func(f []Frame) bool { return len(f) > 0 && f[0].Function != nil }) {
		t.Errorf("%s: got no function at %d addresses", path, len(addrs))
	}
	want := llvmSymbolize(t, path, addrs)
	symbols := readSymbolNames(t, path)
	different := 0
	for i, addr := range addrs {
		if why := differs(got[i], want[i], symbols.at(addr)); why != "" {
			if different++; different <= 10 {
				t.Errorf("%s: %#x: %s\n got %s\nwant %+v", filepath.Base(path), addr, why, describe(got[i]), want[i])
			}
		}
	}
	return different
}

// describe formats frames.
func describe(frames []Frame) string {
	var b strings.Builder
	for _, f := range frames {
		if f.Function != nil {
			fmt.Fprintf(&b, "%s (%d) ", f.Function.Name, f.Function.StartLine)
		}
		fmt.Fprintf(&b, "%s:%d:%d %t\n", f.File, f.Line, f.Column, f.Inlined)
	}
	return b.String()
}

// differs describes how frames differ from llvm-symbolizer's, and returns "" if they do
// not. llvm-symbolizer prefers the symbol table's name for the outermost function.
func differs(got []Frame, want []llvmFrame, symbols []string) string {
	if len(got) == 0 && len(want) == 1 && want[0].Line == 0 && want[0].StartLine == 0 {
		return "" // there may be a name from the symbol table
	}
	if len(got) != len(want) {
		return "depth"
	}
	for i, g := range got {
		w := want[i]
		outermost := i == len(got)-1
		if g.File != w.FileName || int(g.Line) != w.Line {
			return "line"
		}
		if int(g.Column) != w.Column {
			return "column"
		}
		if g.Inlined != !outermost {
			return "inlined"
		}
		fn := g.Function
		if fn == nil {
			if !outermost || w.StartLine != 0 {
				return "no function"
			}
			continue
		}
		if fn.StartLine != w.StartLine {
			return "start line"
		}
		if fn.Name != w.FunctionName && (!outermost || fn.Linkage && !slices.ContainsFunc(symbols, func(s string) bool {
			return s == fn.Name || strings.HasPrefix(s, fn.Name+".")
		})) {
			return "name"
		}
	}
	return ""
}

// TestAgainstLLVM compares with llvm-symbolizer on the programs in the environment:
// FULGUR_TEST_DWARF=program:program.
func TestAgainstLLVM(t *testing.T) {
	programs := testenv.Given(t, "FULGUR_TEST_DWARF")
	for _, path := range strings.Split(programs, ":") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			d, err := Open(openSections(t, path, ""), Options{})
			if err != nil {
				t.Error(err)
			}
			addrs := randomAddresses(t, path, 20000)
			n := compareLLVM(t, path, d, addrs)
			t.Logf("%d of %d addresses differ", n, len(addrs))
		})
	}
}
