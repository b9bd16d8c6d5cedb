package symbolize

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/symbols/elffile/elftest"
)

// madeFunction is a function in a synthetic pclntab.
type madeFunction struct {
	entry     uint32
	name      string
	startLine int32
	lines     pcValues
	calls     pcValues // indexes into the one inline tree
}

// madeTable is a synthetic pclntab, with the fields of the module data that describe it.
type madeTable struct {
	bytes []byte
	funcs uint64 // offset of the functions
	end   uint32 // end of the text
}

const madeHeaderSize = 8 + 8*8

// makeTable returns the pclntab of a 64-bit program. All functions are in a.go. The last
// function's entry is the end of the text.
func makeTable(magic uint32, textStart uint64, functions []madeFunction) madeTable {
	layout := goLayouts[magic]
	functions, end := functions[:len(functions)-1], functions[len(functions)-1].entry
	var names, index, records []byte
	values := []byte{0} // offset 0 means none
	add := func(v pcValues) (at uint32) {
		if len(v) == 0 {
			return 0
		}
		at = uint32(len(values))
		last := pcRun{0, -1}
		for _, r := range v {
			values = binary.AppendVarint(values, int64(r.value-last.value))
			values = binary.AppendUvarint(values, uint64(r.end-last.end))
			last = r
		}
		values = append(values, 0)
		return at
	}
	indexSize := 8*len(functions) + 4
	for _, f := range functions {
		index = binary.LittleEndian.AppendUint32(index, f.entry)
		index = binary.LittleEndian.AppendUint32(index, uint32(indexSize+len(records)))
		record := make([]byte, layout.recordSize)
		for at, v := range map[int]uint32{0: f.entry, 4: uint32(len(names)), 20: add(pcValues{{end, 0}}), 24: add(f.lines), 28: 3} {
			binary.LittleEndian.PutUint32(record[at:], v)
		}
		if layout.startLine != 0 {
			binary.LittleEndian.PutUint32(record[layout.startLine:], uint32(f.startLine))
		}
		const none = 1<<32 - 1
		record[layout.recordSize-1] = 4
		tables := []uint32{0, 0, add(f.calls), none, none, none, 0} // 3 tables by pc, 4 of data
		records = append(append(records, record...), elftest.Struct(tables)...)
		names = append(names, f.name+"\x00"...)
	}
	index = binary.LittleEndian.AppendUint32(index, end)

	units, files := []byte{0, 0, 0, 0}, []byte("a.go\x00")
	table := binary.LittleEndian.AppendUint32(nil, magic)
	table = append(table, 0, 0, 1, 8)
	for _, word := range []uint64{uint64(len(functions)), 0, textStart} {
		table = binary.LittleEndian.AppendUint64(table, word)
	}
	at := uint64(madeHeaderSize)
	for _, part := range [][]byte{names, units, files, values, nil} {
		table = binary.LittleEndian.AppendUint64(table, at)
		at += uint64(len(part))
	}
	return madeTable{slices.Concat(table, names, units, files, values, index, records), at, end}
}

var madeFunctions = []madeFunction{
	{entry: 0x0, name: "main.first", startLine: 3, lines: pcValues{{0x10, 3}, {0x40, 4}}},
	{entry: 0x40, name: "main.(*T[go.shape.int]).second", startLine: 9,
		lines: pcValues{{0x8, 9}, {0x10, 70}, {0x18, 80}, {0x20, 10}},
		calls: pcValues{{0x8, -1}, {0x10, 0}, {0x18, 1}, {0x20, -1}}},
	{entry: 0x80},
}

// words returns a section of 64-bit words.
func words(w ...uint64) []byte {
	var b []byte
	for _, w := range w {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

const (
	madeText   = 0x401000
	madeAddr   = 0x500000 // of the table
	madeModule = 0x600000
	madeCalls  = 0x700000
)

// moduleOf returns the module data for a table.
func moduleOf(magic uint32, table madeTable) []uint64 {
	module := make([]uint64, moduleWords)
	module[moduleHeader], module[moduleNames], module[moduleFuncs] = madeAddr, madeAddr+madeHeaderSize, madeAddr+table.funcs
	module[moduleMinPC], module[moduleMaxPC], module[moduleText] = madeText, madeText+uint64(table.end), madeText
	module[goLayouts[magic].gofunc] = madeCalls
	return module
}

// relocations returns the relocations that write the module data.
func relocations(module []uint64) (rela []byte) {
	for i, w := range module {
		if w != 0 {
			rela = append(rela, words(madeModule+8*uint64(i), uint64(elf.R_X86_64_RELATIVE), w)...)
		}
	}
	return rela
}

// madeFile returns a Go program with the given table, module data, inline tree and
// relocations.
func madeFile(typ elf.Type, table []byte, moduleSection string, module, calls, rela []byte) elftest.File {
	f := elftest.File{Type: typ, Sections: []elftest.Section{
		{Name: ".gopclntab", Addr: madeAddr, Content: table},
		{Name: ".rodata", Addr: madeCalls, Content: calls},
		{Name: moduleSection, Addr: madeModule, Flags: elf.SHF_WRITE, Content: module},
		{Name: ".rela", Type: elf.SHT_RELA, Flags: elf.SHF_ALLOC, Content: rela},
	}}
	for i := range f.Sections[:3] {
		f.Segments = append(f.Segments, elftest.Segment{Type: elf.PT_LOAD, Section: i + 1})
	}
	return f
}

// madeTree is the inline tree of function second, by version. second makes the first
// call, which contains the second one. Both are calls of main.first.
var madeTree = map[uint32][]byte{
	goMagic118: elftest.Struct([]int32{0, 0, 0, 0, 0x1c, 0, 0, 0, 0, 0x8}),
	goMagic120: elftest.Struct([]int32{0, 0, 0x1c, 3, 0, 0, 0x8, 3}),
}

// TestGoVersions finds the start of the text and inlined calls in the layouts of several
// versions of Go.
func TestGoVersions(t *testing.T) {
	relative := uint64(elf.R_X86_64_RELATIVE)
	for _, tt := range []struct {
		name          string
		magic         uint32
		typ           elf.Type
		header        uint64
		moduleSection string
		rela          []byte
		noModule      bool
		merged        bool // pclntab is merged with other read-only data, as external linkers do
		textOnly      bool // inlined calls are not found
		problems      string
	}{
		{name: "1.18", magic: goMagic118, typ: elf.ET_EXEC, header: madeText, moduleSection: ".noptrdata"},
		{name: "1.20", magic: goMagic120, typ: elf.ET_EXEC, header: madeText, moduleSection: ".noptrdata"},
		{name: "1.20 PIE", magic: goMagic120, typ: elf.ET_DYN, rela: words(1, 2, 3), moduleSection: ".data"},
		{name: "1.20 PIE with C", magic: goMagic120, typ: elf.ET_DYN, rela: words(1, 2, 3), moduleSection: ".noptrdata", merged: true},
		{name: "1.26", magic: goMagic120, typ: elf.ET_EXEC, moduleSection: ".go.module"},
		{name: "1.26 PIE", magic: goMagic120, typ: elf.ET_DYN, rela: words(1, 2, 3), moduleSection: ".go.module"},
		{name: "1.20 without module data", magic: goMagic120, typ: elf.ET_EXEC, header: madeText, noModule: true, textOnly: true},
		{name: "1.20 PIE without module data", magic: goMagic120, typ: elf.ET_DYN, rela: words(madeAddr+24, relative, madeText), noModule: true, textOnly: true},
		{name: "1.26 without module data", magic: goMagic120, typ: elf.ET_EXEC, noModule: true, problems: "module data, which locates the code"},
		{name: "1.16", magic: 0xfffffffa, typ: elf.ET_EXEC, header: madeText, problems: "unknown version"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			layout := tt.magic
			if goLayouts[layout] == nil {
				layout = goMagic118
			}
			table := makeTable(layout, tt.header, madeFunctions)
			binary.LittleEndian.PutUint32(table.bytes, tt.magic)
			module := moduleOf(layout, table)
			rela := tt.rela
			switch {
			case tt.noModule:
				module = module[:8]
			case tt.typ == elf.ET_DYN:
				rela = append(rela, relocations(module)...)
				clear(module)
			}
			f := madeFile(tt.typ, table.bytes, tt.moduleSection, words(module...), madeTree[layout], rela)
			if tt.merged {
				before := make([]byte, 64)
				s := &f.Sections[0]
				s.Name, s.Addr, s.Content = ".data.rel.ro", s.Addr-uint64(len(before)), append(before, s.Content...)
				f.Sections = append(f.Sections, elftest.Section{Name: ".go.buildinfo"})
			}
			e := newFile(t, f)
			frames, err := e.LookupBatch([]uint64{madeText - 1, madeText, madeText + 0x47, madeText + 0x50, madeText + 0x7f, madeText + 0x80})
			if tt.problems != "" {
				if err == nil || !strings.Contains(err.Error(), tt.problems) || !strings.HasPrefix(err.Error(), "synthetic: ") {
					t.Errorf("got error %v, want one that contains %q", err, tt.problems)
				}
				return
			}
			first := Frame{Name: "main.first", SystemName: "main.first", File: "a.go", StartLine: 3, Line: 3}
			second := Frame{Name: "main.(*T[...]).second", SystemName: "main.(*T[go.shape.int]).second", File: "a.go", StartLine: 9}
			if tt.magic == goMagic118 {
				first.StartLine, second.StartLine = 0, 0
			}
			at := func(f Frame, line int, offset uint64, inlined bool) Frame {
				f.Line, f.Offset, f.Inlined = line, offset, inlined
				if line == 0 {
					f.File = ""
				}
				return f
			}
			want := [][]Frame{
				nil, {first}, {at(second, 9, 7, false)},
				{at(first, 80, 0x10, true), at(first, 70, 0x10, true), at(second, 10, 0x10, false)},
				{at(second, 0, 0x3f, false)}, nil,
			}
			if tt.textOnly {
				want[3] = []Frame{at(second, 0, 0x10, false)}
				if err == nil || !strings.Contains(err.Error(), "inlined functions are missing") {
					t.Errorf("got error %v, want one about missing inlined functions", err)
				}
			} else if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, frames); diff != "" {
				t.Errorf("frames differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGoInlineFaults checks that a function with malformed inline data keeps its name,
// and that others are not affected.
func TestGoInlineFaults(t *testing.T) {
	for _, tt := range []struct {
		name, problem string
		calls         []int32
	}{
		{"cycle", "more than 128 inlined Go calls", []int32{0, 0, 0x8, 3}},
		{"caller outside", "from outside of its function", []int32{0, 0, 0x40, 3}},
		{"name outside", "Go function name at 0xfffffff", []int32{0, -1, 0x1c, 3}},
		{"empty", "which the file does not hold", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := makeTable(goMagic120, 0, madeFunctions)
			e := newFile(t, madeFile(elf.ET_EXEC, table.bytes, ".go.module", words(moduleOf(goMagic120, table)...), elftest.Struct(tt.calls), nil))
			frames, err := e.LookupBatch([]uint64{madeText, madeText + 0x48})
			if err == nil || !strings.Contains(err.Error(), tt.problem) || !strings.HasPrefix(err.Error(), "synthetic: ") {
				t.Errorf("got error %v, want one that contains %q", err, tt.problem)
			}
			if len(frames[0]) != 1 || frames[0][0].Line != 3 {
				t.Errorf("got frames %+v of a function without faults, want line 3", frames[0])
			}
			if n := len(frames[1]); n == 0 || frames[1][n-1].Offset != 8 || frames[1][n-1].Line != 0 {
				t.Errorf("got frames %+v, want second without a line last", frames[1])
			}
		})
	}
}

func FuzzGoTable(f *testing.F) {
	for magic := range goLayouts {
		table := makeTable(magic, madeText, madeFunctions)
		f.Add(table.bytes, words(moduleOf(magic, table)...), madeTree[magic], uint64(madeText+0x50))
	}
	f.Fuzz(func(t *testing.T, table, module, calls []byte, addr uint64) {
		e := newFile(t, madeFile(elf.ET_EXEC, table, ".go.module", module, calls, nil))
		frames, _ := e.LookupBatch([]uint64{addr / 2, addr, max(addr, addr+1)})
		if len(frames) != 3 {
			t.Fatalf("got %d results, want 3", len(frames))
		}
		for _, fs := range frames {
			for i, f := range fs {
				if f.Name == "" || f.Inlined != (i < len(fs)-1) {
					t.Fatalf("got frames %+v, want names, and all but the last one inlined", fs)
				}
			}
		}
	})
}
