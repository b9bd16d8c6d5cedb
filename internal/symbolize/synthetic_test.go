package symbolize

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
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

// fileOf returns a file that consists of the contents of its sections, in
// order.
func fileOf(typ elf.Type, contents [][]byte, sections ...section) *ELF {
	data := bytes.Join(contents, nil)
	e := &ELF{
		r: bytes.NewReader(data), size: int64(len(data)), name: "synthetic",
		is64: true, typ: typ, machine: elf.EM_X86_64,
	}
	var off uint64
	for i, c := range contents {
		sections[i].off, sections[i].size = off, uint64(len(c))
		off += uint64(len(c))
	}
	e.sections = sections
	e.sectionsOnce.Do(func() {})
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
		{name: "truncated module data", magic: goMagic120, typ: elf.ET_EXEC, module: words(module[:8]...), problems: "outside of the file"},
		{name: "1.16", magic: 0xfffffffa, typ: elf.ET_EXEC, header: text, problems: "unknown version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := fileOf(tt.typ,
				[][]byte{goTableBytes(tt.magic, tt.header, goFunctionsMade), tt.rela, tt.module},
				section{typ: elf.SHT_PROGBITS, goTable: true, addr: table},
				section{typ: elf.SHT_RELA},
				section{typ: elf.SHT_PROGBITS, goModule: len(tt.module) > 0, addr: 0x600000})
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
		e := fileOf(elf.ET_EXEC, [][]byte{table}, section{goTable: true, addr: 0x1000})
		frames, _ := e.LookupBatch([]uint64{addr / 2, addr})
		if len(frames) != 2 {
			t.Fatalf("%d results for 2 addresses", len(frames))
		}
	})
}

// elfSymbol is an entry of a made-up .symtab.
type elfSymbol struct {
	name        string
	start, size uint64
	bind        elf.SymBind
	typ         elf.SymType
	section     uint16
}

// symbolFile returns a file with the given symbols; its section 1 is code from
// 0x1000 to 0x2000, section 2 is data.
func symbolFile(typ elf.SectionType, symbols []elfSymbol) *ELF {
	var symtab bytes.Buffer
	strtab := []byte{0}
	for _, s := range symbols {
		// A write to a buffer cannot fail.
		_ = binary.Write(&symtab, binary.LittleEndian, elf.Sym64{
			Name: uint32(len(strtab)), Info: elf.ST_INFO(s.bind, s.typ),
			Shndx: s.section, Value: s.start, Size: s.size,
		})
		strtab = append(strtab, s.name+"\x00"...)
	}
	return tableFile(typ, symtab.Bytes(), strtab)
}

func tableFile(typ elf.SectionType, symtab, strtab []byte) *ELF {
	e := fileOf(elf.ET_EXEC, [][]byte{symtab, nil, nil, strtab},
		section{typ: typ, link: 3}, section{}, section{}, section{typ: elf.SHT_STRTAB})
	e.sections[1] = section{typ: elf.SHT_PROGBITS, exec: true, addr: 0x1000, size: 0x1000}
	e.sections[2] = section{typ: elf.SHT_PROGBITS, addr: 0x3000, size: 0x1000}
	return e
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
		{"sized", []elfSymbol{{"f", 0x1000, 16, global, fn, 1}}, 0x100f, "f", "f"},
		{"behind its end", []elfSymbol{{"f", 0x1000, 16, global, fn, 1}}, 0x1010, "", ""},
		{"unsized to the next", []elfSymbol{{"f", 0x1000, 0, global, fn, 1}, {"g", 0x1100, 8, global, fn, 1}}, 0x10ff, "f", ""},
		{"unsized ends at the next", []elfSymbol{{"f", 0x1000, 0, global, fn, 1}, {"g", 0x1100, 8, global, fn, 1}}, 0x1108, "", ""},
		{"unsized to the section's end", []elfSymbol{{"f", 0x1000, 0, global, fn, 1}}, 0x1fff, "f", ""},
		{"unsized not beyond it", []elfSymbol{{"f", 0x1000, 0, global, fn, 1}}, 0x2000, "", ""},
		{"unsized never beats sized", []elfSymbol{{"f", 0x1000, 0x100, local, fn, 1}, {"label", 0x1080, 0, global, none, 1}}, 0x1090, "f", "f"},
		{"innermost", []elfSymbol{{"in", 0x1010, 8, local, fn, 1}, {"out", 0x1000, 0x100, global, fn, 1}}, 0x1012, "in", "in"},
		{"behind the inner one", []elfSymbol{{"in", 0x1010, 8, local, fn, 1}, {"out", 0x1000, 0x100, global, fn, 1}}, 0x1020, "out", "out"},
		{"global over weak", []elfSymbol{{"weak", 0x1000, 16, weak, fn, 1}, {"__global", 0x1000, 16, global, fn, 1}}, 0x1000, "__global", "__global"},
		{"local over weak", []elfSymbol{{"weak", 0x1000, 16, weak, fn, 1}, {"__local", 0x1000, 16, local, fn, 1}}, 0x1000, "__local", "__local"},
		{"global over local", []elfSymbol{{"__global", 0x1000, 16, global, fn, 1}, {"local", 0x1000, 16, local, fn, 1}}, 0x1000, "__global", "__global"},
		{"fewer underscores", []elfSymbol{{"_read", 0x1000, 16, global, fn, 1}, {"read", 0x1000, 16, global, fn, 1}, {"__libc_read", 0x1000, 16, global, fn, 1}}, 0x1000, "read", "read"},
		{"the longer one", []elfSymbol{{"ab", 0x1000, 16, global, fn, 1}, {"abc", 0x1000, 16, global, fn, 1}}, 0x1000, "abc", "abc"},
		{"mapping symbols", []elfSymbol{{"f", 0x1000, 0, global, fn, 1}, {"$x", 0x1010, 0, local, none, 1}, {"$d.1", 0x1020, 0, local, none, 1}, {".L5", 0x1030, 0, local, none, 1}}, 0x1040, "f", ""},
		{"data in text", []elfSymbol{{"f", 0x1000, 0, global, fn, 1}, {"table", 0x1010, 0x100, local, object, 1}}, 0x1020, "f", ""},
		{"undefined, absolute, data", []elfSymbol{{"u", 0x1000, 16, global, fn, 0}, {"a", 0x1000, 16, global, none, uint16(elf.SHN_ABS)}, {"d", 0x1000, 16, global, none, 2}}, 0x1000, "", ""},
		{"size wraps around", []elfSymbol{{"f", 0x1000, 1<<64 - 1, global, fn, 1}}, 0x1800, "f", "f"},
	} {
		for typ, want := range map[elf.SectionType]string{elf.SHT_SYMTAB: tt.want, elf.SHT_DYNSYM: tt.dynsym} {
			for _, reversed := range []bool{false, true} {
				symbols := slices.Clone(tt.symbols)
				if reversed {
					slices.Reverse(symbols)
				}
				frames, err := symbolFile(typ, symbols).LookupBatch([]uint64{0, tt.addr, 1 << 63})
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
	seed := symbolFile(elf.SHT_SYMTAB, []elfSymbol{
		{"f", 0x1000, 16, elf.STB_GLOBAL, elf.STT_FUNC, 1},
		{"_f", 0x1000, 16, elf.STB_GLOBAL, elf.STT_FUNC, 1},
		{"_ZN3app3BoxIiE4sizeEv", 0x1100, 0, elf.STB_LOCAL, elf.STT_NOTYPE, 1},
	})
	tables := make([]byte, seed.size)
	if err := seed.readAt(tables, 0, "tables"); err != nil {
		f.Fatal(err)
	}
	n := seed.sections[0].size
	f.Add(tables[:n], tables[n:], uint64(0x1001))
	f.Fuzz(func(t *testing.T, symtab, strtab []byte, addr uint64) {
		addrs := []uint64{addr / 2, addr}
		frames, _ := tableFile(elf.SHT_SYMTAB, symtab, strtab).LookupBatch(addrs)
		for i, fs := range frames {
			if len(fs) > 0 && fs[0].Offset > addrs[i] {
				t.Fatalf("%#x lies %#x in %s", addrs[i], fs[0].Offset, fs[0].Name)
			}
		}
	})
}
