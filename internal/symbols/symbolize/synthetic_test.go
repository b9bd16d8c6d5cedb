package symbolize

import (
	"bytes"
	"debug/elf"
	"slices"
	"testing"

	"fulgur/internal/symbols/elffile/elftest"
)

// newFile opens a synthetic file.
func newFile(t testing.TB, f elftest.File) *ELF {
	t.Helper()
	content := f.Bytes()
	e, err := OpenELF(bytes.NewReader(content), int64(len(content)), "synthetic", Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// elfSymbol is a symbol of a test table.
type elfSymbol struct {
	name        string
	start, size uint64
	bind        elf.SymBind
	typ         elf.SymType
	section     elf.SectionIndex
	visibility  elf.SymVis
}

// symbolFile returns a file with the given symbols. Section 1 is code from 0x1000 to
// 0x2000, section 2 is data.
func symbolFile(t testing.TB, typ elf.SectionType, symbols ...elfSymbol) *ELF {
	entries := make([]elftest.Symbol, len(symbols))
	for i, s := range symbols {
		entries[i] = elftest.Symbol{
			Name: s.name, Value: s.start, Size: s.size, Binding: s.bind, Type: s.typ,
			Section: s.section, Other: byte(s.visibility),
		}
	}
	table, names := elftest.Symbols(typ, 4, entries...)
	return newFile(t, elftest.File{Sections: append(codeAndData(), table, names)})
}

func codeAndData() []elftest.Section {
	return []elftest.Section{
		{Name: ".text", Type: elf.SHT_NOBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: 0x1000, Size: 0x1000},
		{Name: ".data", Type: elf.SHT_NOBITS, Flags: elf.SHF_ALLOC | elf.SHF_WRITE, Addr: 0x3000, Size: 0x1000},
	}
}

// TestSymbolRules checks which of several symbols names an address.
func TestSymbolRules(t *testing.T) {
	const (
		local, global, weak = elf.STB_LOCAL, elf.STB_GLOBAL, elf.STB_WEAK
		fn, none, object    = elf.STT_FUNC, elf.STT_NOTYPE, elf.STT_OBJECT
	)
	for _, tt := range []struct {
		name    string
		symbols []elfSymbol
		addr    uint64
		want    string
		dynsym  string // the result for the same symbols in .dynsym
	}{
		{"sized", []elfSymbol{{"f", 0x1000, 16, global, fn, 1, 0}}, 0x100f, "f", "f"},
		{"after its end", []elfSymbol{{"f", 0x1000, 16, global, fn, 1, 0}}, 0x1010, "", ""},
		{"unsized to the next", []elfSymbol{{"f", 0x1000, 0, global, fn, 1, 0}, {"g", 0x1100, 8, global, fn, 1, 0}}, 0x10ff, "f", ""},
		{"unsized ends at the next", []elfSymbol{{"f", 0x1000, 0, global, fn, 1, 0}, {"g", 0x1100, 8, global, fn, 1, 0}}, 0x1108, "", ""},
		{"unsized to the section's end", []elfSymbol{{"f", 0x1000, 0, global, fn, 1, 0}}, 0x1fff, "f", ""},
		{"unsized ends at the section's end", []elfSymbol{{"f", 0x1000, 0, global, fn, 1, 0}}, 0x2000, "", ""},
		{"unsized never beats sized", []elfSymbol{{"f", 0x1000, 0x100, local, fn, 1, 0}, {"label", 0x1080, 0, global, none, 1, 0}}, 0x1090, "f", "f"},
		{"innermost", []elfSymbol{{"in", 0x1010, 8, local, fn, 1, 0}, {"out", 0x1000, 0x100, global, fn, 1, 0}}, 0x1012, "in", "in"},
		{"after the inner one", []elfSymbol{{"in", 0x1010, 8, local, fn, 1, 0}, {"out", 0x1000, 0x100, global, fn, 1, 0}}, 0x1020, "out", "out"},
		{"global over weak", []elfSymbol{{"weak", 0x1000, 16, weak, fn, 1, 0}, {"__global", 0x1000, 16, global, fn, 1, 0}}, 0x1000, "__global", "__global"},
		{"weak over local", []elfSymbol{{"__weak", 0x1000, 16, weak, fn, 1, 0}, {"local", 0x1000, 16, local, fn, 1, 0}}, 0x1000, "__weak", "__weak"},
		{"a resolver", []elfSymbol{{"strlen", 0x1000, 16, global, elf.STT_GNU_IFUNC, 1, 0}}, 0x1008, "strlen", "strlen"},
		{"versions", []elfSymbol{{"memcpy@@GLIBC_2.14", 0x1000, 16, global, fn, 1, 0}}, 0x1000, "memcpy", "memcpy"},
		{"a label does not leave its function", []elfSymbol{{"f", 0x1000, 0x100, global, fn, 1, 0}, {"label", 0x1080, 0, local, none, 1, 0}}, 0x1100, "", ""},
		{"a label after it", []elfSymbol{{"f", 0x1000, 0x100, global, fn, 1, 0}, {"label", 0x1100, 0, local, none, 1, 0}}, 0x1110, "label", ""},
		{"the assembler's labels", []elfSymbol{{"f", 0x1000, 0, global, fn, 1, 0}, {"L1\x021", 0x1010, 0, local, none, 1, 0}, {".annobin_a.c", 0x1020, 0, local, none, 1, elf.STV_HIDDEN}}, 0x1040, "f", ""},
		{"global over local", []elfSymbol{{"__global", 0x1000, 16, global, fn, 1, 0}, {"local", 0x1000, 16, local, fn, 1, 0}}, 0x1000, "__global", "__global"},
		{"fewer underscores", []elfSymbol{{"_read", 0x1000, 16, global, fn, 1, 0}, {"read", 0x1000, 16, global, fn, 1, 0}, {"__libc_read", 0x1000, 16, global, fn, 1, 0}}, 0x1000, "read", "read"},
		{"the longer one", []elfSymbol{{"ab", 0x1000, 16, global, fn, 1, 0}, {"abc", 0x1000, 16, global, fn, 1, 0}}, 0x1000, "abc", "abc"},
		{"mapping symbols", []elfSymbol{{"f", 0x1000, 0, global, fn, 1, 0}, {"$x", 0x1010, 0, local, none, 1, 0}, {"$d.1", 0x1020, 0, local, none, 1, 0}, {".L5", 0x1030, 0, local, none, 1, 0}}, 0x1040, "f", ""},
		{"data in text", []elfSymbol{{"f", 0x1000, 0, global, fn, 1, 0}, {"table", 0x1010, 0x100, local, object, 1, 0}}, 0x1020, "f", ""},
		{"undefined, absolute, data", []elfSymbol{{"u", 0x1000, 16, global, fn, 0, 0}, {"a", 0x1000, 16, global, none, elf.SHN_ABS, 0}, {"d", 0x1000, 16, global, none, 2, 0}}, 0x1000, "", ""},
		{"size wraps around", []elfSymbol{{"f", 0x1000, 1<<64 - 1, global, fn, 1, 0}}, 0x1800, "f", "f"},
	} {
		for typ, want := range map[elf.SectionType]string{elf.SHT_SYMTAB: tt.want, elf.SHT_DYNSYM: tt.dynsym} {
			for _, reversed := range []bool{false, true} {
				symbols := slices.Clone(tt.symbols)
				if reversed {
					slices.Reverse(symbols)
				}
				frames, err := symbolFile(t, typ, symbols...).LookupBatch([]uint64{0, tt.addr, 1 << 63})
				if err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
				got := ""
				if len(frames[1]) == 1 {
					got = frames[1][0].Name
				}
				if got != want || frames[0] != nil || frames[2] != nil {
					t.Errorf("%s, %v, reversed %v: got %q, want %q", tt.name, typ, reversed, got, want)
				}
			}
		}
	}
}

func FuzzSymbols(f *testing.F) {
	table, names := elftest.Symbols(elf.SHT_SYMTAB, 4,
		elftest.Symbol{Name: "f", Value: 0x1000, Size: 16, Binding: elf.STB_GLOBAL, Type: elf.STT_FUNC, Section: 1},
		elftest.Symbol{Name: "_f", Value: 0x1000, Size: 16, Binding: elf.STB_GLOBAL, Type: elf.STT_FUNC, Section: 1},
		elftest.Symbol{Name: "_ZN3app3BoxIiE4sizeEv", Value: 0x1100, Section: 1},
	)
	f.Add(table.Content, names.Content, uint64(0x1001))
	f.Fuzz(func(t *testing.T, symtab, strtab []byte, addr uint64) {
		table, names := table, names
		table.Content, names.Content = symtab, strtab
		addrs := []uint64{addr / 2, addr}
		frames, _ := newFile(t, elftest.File{Sections: append(codeAndData(), table, names)}).LookupBatch(addrs)
		for i, fs := range frames {
			if len(fs) > 0 && fs[0].Offset > addrs[i] {
				t.Fatalf("%#x: got offset %#x in %s", addrs[i], fs[0].Offset, fs[0].Name)
			}
		}
	})
}
