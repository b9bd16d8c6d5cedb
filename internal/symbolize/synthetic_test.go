package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/elffile/elftest"
)

// goFunction is a function of a made-up pclntab.
type goFunction struct {
	entry     uint32
	name      string
	startLine int32
}

// goTableBytes writes the pclntab of a 64-bit program. The last function's
// entry is where the text ends.
func goTableBytes(magic uint32, textStart uint64, functions []goFunction) []byte {
	const headerSize, recordSize = 8 + 8*8, 44
	functions, end := functions[:len(functions)-1], functions[len(functions)-1].entry
	var names, index, records []byte
	indexSize := 8*len(functions) + 4
	for _, f := range functions {
		index = binary.LittleEndian.AppendUint32(index, f.entry)
		index = binary.LittleEndian.AppendUint32(index, uint32(indexSize+len(records)))
		record := make([]byte, recordSize)
		binary.LittleEndian.PutUint32(record, f.entry)
		binary.LittleEndian.PutUint32(record[4:], uint32(len(names)))
		binary.LittleEndian.PutUint32(record[36:], uint32(f.startLine))
		records = append(records, record...)
		names = append(names, f.name+"\x00"...)
	}
	index = binary.LittleEndian.AppendUint32(index, end)

	table := binary.LittleEndian.AppendUint32(nil, magic)
	table = append(table, 0, 0, 1, 8)
	after := uint64(headerSize + len(names)) // nothing stands in the tables between
	for _, word := range []uint64{uint64(len(functions)), 0, textStart, headerSize, after, after, after, after} {
		table = binary.LittleEndian.AppendUint64(table, word)
	}
	return slices.Concat(table, names, index, records)
}

// newFile opens a made-up file.
func newFile(t testing.TB, f elftest.File) *ELF {
	t.Helper()
	content := f.Bytes()
	e, err := OpenELF(bytes.NewReader(content), int64(len(content)), "synthetic", Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var goFunctionsMade = []goFunction{{0x0, "main.first", 3}, {0x40, "main.(*T).second", 9}, {0x80, "", 0}}

// words is a section of 64-bit words.
func words(w ...uint64) []byte {
	var b []byte
	for _, w := range w {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// TestGoVersions finds the start of the text as the versions of Go keep it.
func TestGoVersions(t *testing.T) {
	const text, table = 0x401000, 0x500000
	relative := uint64(elf.R_X86_64_RELATIVE)
	module := make([]uint64, 23)
	module[20], module[22] = text, text
	for _, tt := range []struct {
		name     string
		magic    uint32
		typ      elf.Type
		header   uint64
		rela     []byte
		module   []byte
		line     int
		problems string
	}{
		{name: "1.18", magic: goMagic118, typ: elf.ET_EXEC, header: text},
		{name: "1.20", magic: goMagic120, typ: elf.ET_EXEC, header: text, line: 9},
		{name: "1.20 PIE", magic: goMagic120, typ: elf.ET_DYN, rela: words(1, 2, 3, table+24, relative, text), line: 9},
		{name: "1.26", magic: goMagic120, typ: elf.ET_EXEC, module: words(module...), line: 9},
		{name: "1.26 PIE", magic: goMagic120, typ: elf.ET_DYN, module: words(make([]uint64, 23)...), line: 9,
			rela: words(0x600000+8*20, relative, text, 0x600000+8*22, relative, text)},
		{name: "1.26 without module data", magic: goMagic120, typ: elf.ET_EXEC, problems: "without the address of the text"},
		{name: "unknown module data", magic: goMagic120, typ: elf.ET_EXEC, module: words(append(module[1:], 0)...), problems: "unknown layout"},
		{name: "truncated module data", magic: goMagic120, typ: elf.ET_EXEC, module: words(module[:8]...), problems: "outside of its section"},
		{name: "1.16", magic: 0xfffffffa, typ: elf.ET_EXEC, header: text, problems: "unknown version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sections := []elftest.Section{
				{Name: ".gopclntab", Addr: table, Content: goTableBytes(tt.magic, tt.header, goFunctionsMade)},
				{Name: ".rela", Type: elf.SHT_RELA, Flags: elf.SHF_ALLOC, Content: tt.rela},
			}
			if len(tt.module) > 0 {
				sections = append(sections, elftest.Section{Name: ".go.module", Addr: 0x600000, Content: tt.module})
			}
			e := newFile(t, elftest.File{Type: tt.typ, Sections: sections})
			frames, err := e.LookupBatch([]uint64{text - 1, text, text + 0x47, text + 0x7f, text + 0x80})
			if tt.problems != "" {
				if err == nil || !strings.Contains(err.Error(), tt.problems) || !strings.HasPrefix(err.Error(), "synthetic: ") {
					t.Errorf("error %v, want one that says %q", err, tt.problems)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if frames[0] != nil || frames[4] != nil {
				t.Errorf("names outside of the text: %v %v", frames[0], frames[4])
			}
			want := Frame{Name: "main.(*T).second", SystemName: "main.(*T).second", StartLine: tt.line, Offset: 7}
			if len(frames[2]) != 1 || frames[2][0] != want {
				t.Errorf("frames %+v, want %+v", frames[2], want)
			}
			if len(frames[1]) != 1 || frames[1][0].Name != "main.first" || len(frames[3]) != 1 || frames[3][0].Offset != 0x3f {
				t.Errorf("frames at the edges: %+v, %+v", frames[1], frames[3])
			}
		})
	}
}

func FuzzGoTable(f *testing.F) {
	f.Add(goTableBytes(goMagic120, 0x1000, goFunctionsMade), uint64(0x1041))
	f.Add(goTableBytes(goMagic118, 0x1000, goFunctionsMade), uint64(0x1000))
	f.Fuzz(func(t *testing.T, table []byte, addr uint64) {
		e := newFile(t, elftest.File{Type: elf.ET_EXEC, Sections: []elftest.Section{{Name: ".gopclntab", Addr: 0x1000, Content: table}}})
		frames, _ := e.LookupBatch([]uint64{addr / 2, addr})
		if len(frames) != 2 {
			t.Fatalf("%d results for 2 addresses", len(frames))
		}
	})
}

// elfSymbol is a symbol in a table of tests.
type elfSymbol struct {
	name        string
	start, size uint64
	bind        elf.SymBind
	typ         elf.SymType
	section     elf.SectionIndex
	visibility  elf.SymVis
}

// symbolFile returns a file with the given symbols; its section 1 is code from
// 0x1000 to 0x2000, section 2 is data.
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
		dynsym  string // what the same symbols give in .dynsym
	}{
		{"sized", []elfSymbol{{"f", 0x1000, 16, global, fn, 1, 0}}, 0x100f, "f", "f"},
		{"behind its end", []elfSymbol{{"f", 0x1000, 16, global, fn, 1, 0}}, 0x1010, "", ""},
		{"unsized to the next", []elfSymbol{{"f", 0x1000, 0, global, fn, 1, 0}, {"g", 0x1100, 8, global, fn, 1, 0}}, 0x10ff, "f", ""},
		{"unsized ends at the next", []elfSymbol{{"f", 0x1000, 0, global, fn, 1, 0}, {"g", 0x1100, 8, global, fn, 1, 0}}, 0x1108, "", ""},
		{"unsized to the section's end", []elfSymbol{{"f", 0x1000, 0, global, fn, 1, 0}}, 0x1fff, "f", ""},
		{"unsized not beyond it", []elfSymbol{{"f", 0x1000, 0, global, fn, 1, 0}}, 0x2000, "", ""},
		{"unsized never beats sized", []elfSymbol{{"f", 0x1000, 0x100, local, fn, 1, 0}, {"label", 0x1080, 0, global, none, 1, 0}}, 0x1090, "f", "f"},
		{"innermost", []elfSymbol{{"in", 0x1010, 8, local, fn, 1, 0}, {"out", 0x1000, 0x100, global, fn, 1, 0}}, 0x1012, "in", "in"},
		{"behind the inner one", []elfSymbol{{"in", 0x1010, 8, local, fn, 1, 0}, {"out", 0x1000, 0x100, global, fn, 1, 0}}, 0x1020, "out", "out"},
		{"global over weak", []elfSymbol{{"weak", 0x1000, 16, weak, fn, 1, 0}, {"__global", 0x1000, 16, global, fn, 1, 0}}, 0x1000, "__global", "__global"},
		{"weak over local", []elfSymbol{{"__weak", 0x1000, 16, weak, fn, 1, 0}, {"local", 0x1000, 16, local, fn, 1, 0}}, 0x1000, "__weak", "__weak"},
		{"a resolver", []elfSymbol{{"strlen", 0x1000, 16, global, elf.STT_GNU_IFUNC, 1, 0}}, 0x1008, "strlen", "strlen"},
		{"versions", []elfSymbol{{"memcpy@@GLIBC_2.14", 0x1000, 16, global, fn, 1, 0}}, 0x1000, "memcpy", "memcpy"},
		{"a label does not leave its function", []elfSymbol{{"f", 0x1000, 0x100, global, fn, 1, 0}, {"label", 0x1080, 0, local, none, 1, 0}}, 0x1100, "", ""},
		{"a label behind it", []elfSymbol{{"f", 0x1000, 0x100, global, fn, 1, 0}, {"label", 0x1100, 0, local, none, 1, 0}}, 0x1110, "label", ""},
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
					t.Errorf("%s, %v, reversed %v: %q, want %q", tt.name, typ, reversed, got, want)
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
				t.Fatalf("%#x lies %#x in %s", addrs[i], fs[0].Offset, fs[0].Name)
			}
		}
	})
}
