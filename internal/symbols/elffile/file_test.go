package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fulgur/internal/symbols/elffile/elftest"
)

// TestHeaders compares headers with the standard library's.
func TestHeaders(t *testing.T) {
	for _, path := range distributionFiles {
		t.Run(path, func(t *testing.T) {
			f := open(t, path)
			want, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer want.Close()
			if f.Type() != want.Type || f.Machine() != want.Machine || f.Entry() != want.Entry || f.WordSize() != 8 {
				t.Errorf("got %v %v %#x, want %v %v %#x", f.Type(), f.Machine(), f.Entry(), want.Type, want.Machine, want.Entry)
			}
			var segments []Segment
			for _, p := range want.Progs {
				segments = append(segments, Segment{p.Type, p.Flags, p.Off, p.Filesz, p.Vaddr, p.Memsz, p.Align})
			}
			if diff := cmp.Diff(segments, f.Segments()); diff != "" {
				t.Error(diff)
			}
			var sections []*Section
			for _, s := range want.Sections {
				sections = append(sections, &Section{
					Name: s.Name, Type: s.Type, Flags: s.Flags, Addr: s.Addr, Offset: s.Offset, Size: s.Size,
					Link: int(s.Link), Info: int(s.Info), Align: s.Addralign, EntSize: s.Entsize,
				})
			}
			got, err := f.Sections()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(sections, got, cmpopts.IgnoreUnexported(Section{})); diff != "" {
				t.Error(diff)
			}
			for _, s := range want.Sections {
				if s.Type == elf.SHT_NOBITS || s.Type == elf.SHT_NULL {
					continue
				}
				data, err := s.Data()
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(contents(t, f.Section(s.Name)), data) {
					t.Errorf("%s differs", s.Name)
				}
			}
			notes := run(t, "readelf", "-n", path)
			if f.BuildID() == "" || !strings.Contains(notes, "Build ID: "+f.BuildID()+"\n") {
				t.Errorf("got build ID %q, want readelf's\n%s", f.BuildID(), notes)
			}
		})
	}
}

// TestSymbols compares symbol tables with the standard library's.
func TestSymbols(t *testing.T) {
	for _, path := range append(distributionFiles, "/proc/self/exe") {
		t.Run(path, func(t *testing.T) {
			f := open(t, path)
			sections, err := f.Sections()
			if err != nil {
				t.Fatal(err)
			}
			std, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer std.Close()
			for _, s := range sections {
				read := std.Symbols
				switch s.Type {
				case elf.SHT_DYNSYM:
					read = std.DynamicSymbols
				case elf.SHT_SYMTAB:
				default:
					continue
				}
				want, err := read()
				if err != nil {
					t.Fatal(err)
				}
				names, i := f.SymbolNames(s), -1 // the standard library omits the first symbol
				err = f.EachSymbol(s, func(sym Symbol) bool {
					if i >= 0 {
						w := want[i]
						if string(names.At(uint64(sym.Name))) != w.Name || sym.Value != w.Value || sym.Size != w.Size ||
							sym.Section != w.Section || elf.ST_INFO(sym.Binding, sym.Type) != w.Info || byte(sym.Visibility) != w.Other&3 {
							t.Errorf("symbol %d: got %+v, want %+v", i, sym, w)
						}
					}
					i++
					return !t.Failed()
				})
				if err != nil || names.Err() != nil {
					t.Fatal(err, names.Err())
				}
				if i != len(want) {
					t.Errorf("got %d symbols, want %d", i, len(want))
				}
			}
		})
	}
}

// hole is a file that ends in a hole.
type hole struct{ head []byte }

func (h hole) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	if off < int64(len(h.head)) {
		copy(b, h.head[off:])
	}
	return len(b), nil
}

// TestTooLarge checks that a huge symbol table is refused without being read.
func TestTooLarge(t *testing.T) {
	b := elftest.File{Machine: elf.EM_X86_64, Sections: []elftest.Section{{Name: ".symtab", Type: elf.SHT_SYMTAB, Content: make([]byte, 24)}}}.Bytes()
	// Elf64_Ehdr.e_shoff, and Elf64_Shdr.sh_size of the first section.
	binary.LittleEndian.PutUint64(b[binary.LittleEndian.Uint64(b[40:])+64+32:], maxTable+1)
	f, err := New(hole{b}, 1<<40, "made-up")
	if err != nil {
		t.Fatal(err)
	}
	err = f.EachSymbol(f.Section(".symtab"), func(Symbol) bool {
		t.Error("the table was read")
		return false
	})
	if err == nil || !strings.Contains(err.Error(), "more than any program has") {
		t.Error(err)
	}
}

func TestBase(t *testing.T) {
	for want, f := range map[uint64]*File{
		0: {segments: []Segment{{Type: elf.PT_NOTE, Addr: 0x10}}},
		0x400000: {segments: []Segment{
			{Type: elf.PT_PHDR, Addr: 0x40}, {Type: elf.PT_LOAD, Addr: 0x600000}, {Type: elf.PT_LOAD, Addr: 0x400000},
		}},
	} {
		if got := f.Base(); got != want {
			t.Errorf("got base %#x, want %#x", got, want)
		}
	}
}

func TestAddress(t *testing.T) {
	load := func(flags elf.ProgFlag, off, addr, size uint64) Segment {
		return Segment{Type: elf.PT_LOAD, Flags: flags, Offset: off, Addr: addr, FileSize: size, MemSize: size + 0x1000}
	}
	f := &File{segments: []Segment{
		load(elf.PF_R, 0, 0, 0x1000),
		load(elf.PF_R|elf.PF_X, 0x1000, 0x2000, 0x500),
		load(elf.PF_X, 0x2040, 0x5040, 0x100),
		{Type: elf.PT_NOTE, Flags: elf.PF_X, Offset: 0x8000, FileSize: 0x100},
	}}
	for _, tt := range []struct {
		off, addr uint64
		exec, ok  bool
	}{
		{0xfff, 0xfff, false, true},
		{0x1000, 0x2000, true, true},
		{0x14ff, 0x24ff, true, true},
		{0x1500, 0x2500, false, false},
		{0x2040, 0x5040, true, true},
		{0x2140, 0x5140, false, false},
		{0x8000, 0x8000, false, false},
		{1<<64 - 1, 1<<64 - 1, false, false},
	} {
		if got, ok := f.Address(tt.off); ok != tt.exec || ok && got != tt.addr {
			t.Errorf("Address(%#x) = %#x, %v; want %#x, %v", tt.off, got, ok, tt.addr, tt.exec)
		}
		if got, ok := f.Offset(tt.addr); ok != tt.ok || ok && got != tt.off {
			t.Errorf("Offset(%#x) = %#x, %v; want %#x, %v", tt.addr, got, ok, tt.off, tt.ok)
		}
	}
}

func TestLinks(t *testing.T) {
	for _, tt := range []struct {
		name    string
		content string
		link    *DebugLink
		alt     *AltLink
	}{
		{"link", "a.debug\x00\x78\x56\x34\x12", &DebugLink{"a.debug", 0x12345678}, nil},
		{"padded link", "ab.debug\x00\x00\x00\x00\x78\x56\x34\x12", &DebugLink{"ab.debug", 0x12345678}, nil},
		{"link without checksum", "a.debug\x00\x78\x56\x34", nil, nil},
		{"link without name", "\x00\x00\x00\x00\x78\x56\x34\x12", nil, nil},
		{"link without end", "a.debug", nil, nil},
		{"alt", "/x/y.debug\x00\xab\xcd", nil, &AltLink{"/x/y.debug", "abcd"}},
		{"alt without build ID", "/x/y.debug\x00", nil, nil},
		{"alt without path", "\x00\xab\xcd", nil, nil},
		{"sup", "\x05\x00\x00y.debug\x00\x02\xab\xcd", nil, &AltLink{"y.debug", "abcd"}},
		{"sup of another version", "\x06\x00\x00y.debug\x00\x02\xab\xcd", nil, nil},
		{"sup without checksum", "\x05\x00\x00y.debug\x00\x00", nil, nil},
		{"sup with half a checksum", "\x05\x00\x00y.debug\x00\x03\xab\xcd", nil, nil},
		{"sup without path", "\x05\x00\x00\x00\x02\xab\xcd", nil, nil},
		{"sup without end", "\x05\x00\x00y.debug", nil, nil},
		{"empty sup", "", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			section := elftest.Section{Name: ".gnu_debuglink", Content: []byte(tt.content)}
			switch {
			case strings.HasPrefix(tt.name, "alt"):
				section.Name = ".gnu_debugaltlink"
			case strings.Contains(tt.name, "sup"):
				section.Name = ".debug_sup"
			}
			f := fileOf(t, elftest.File{Sections: []elftest.Section{section}}.Bytes())
			link, linkErr := f.DebugLink()
			alt, altErr := f.AltLink()
			if diff := cmp.Diff(tt.link, link) + cmp.Diff(tt.alt, alt); diff != "" {
				t.Error(diff)
			}
			if wrong := tt.link == nil && tt.alt == nil; (linkErr != nil || altErr != nil) != wrong {
				t.Errorf("got errors %v, %v; want one: %v", linkErr, altErr, wrong)
			}
		})
	}
}

func TestAltID(t *testing.T) {
	for _, tt := range []struct{ sup, want string }{
		{"\x05\x00\x01\x00\x02\xab\xcd", "abcd"},
		{"\x05\x00\x00y.debug\x00\x02\xab\xcd", "0102"}, // has a link itself
		{"", "0102"},
	} {
		f := fileOf(t, elftest.File{Sections: []elftest.Section{
			elftest.BuildID([]byte{1, 2}), {Name: ".debug_sup", Content: []byte(tt.sup)},
		}}.Bytes())
		if got := f.AltID(); got != tt.want {
			t.Errorf("%q: got %s, want %s", tt.sup, got, tt.want)
		}
	}
}

func TestNotELF(t *testing.T) {
	for _, content := range []string{"", "\x7fELF", strings.Repeat("x", 100), "#!/bin/sh\n", "\x7fELF\x02\x02" + strings.Repeat("\x00", 60), "\x7fELF\x03\x01" + strings.Repeat("\x00", 60)} {
		_, err := New(strings.NewReader(content), int64(len(content)), "file")
		if format := (*FormatError)(nil); !errors.As(err, &format) || !strings.HasPrefix(err.Error(), "file: ") {
			t.Errorf("%q: got error %v, want a FormatError with the file name", content, err)
		}
	}
	if _, err := Open("/proc/self"); err == nil {
		t.Error("got no error for a directory")
	}
}

// FuzzFile calls all methods that read a file.
func FuzzFile(f *testing.F) {
	table, names := elftest.Symbols(elf.SHT_DYNSYM, 3, elftest.Symbol{Name: "puts"})
	f.Add(elftest.File{
		Segments: []elftest.Segment{{Type: elf.PT_NOTE, Section: 1}},
		Sections: []elftest.Section{
			elftest.BuildID([]byte{1, 2, 3}), table, names,
			{Name: ".plt.sec", Addr: 0x1000, Content: []byte("\xf3\x0f\x1e\xfa\xff\x25\x00\x10\x00\x00")},
			{Name: ".rela.plt", Type: elf.SHT_RELA, Flags: elf.SHF_ALLOC, Link: 2, Content: elftest.Struct(elf.Rela64{Off: 0x200a, Info: elf.R_INFO(1, uint32(elf.R_X86_64_JMP_SLOT))})},
			{Name: ".gnu_debuglink", Content: []byte("a\x00\x00\x00\x78\x56\x34\x12")},
			{Name: ".gnu_debugaltlink", Content: []byte("a\x00\x78\x56\x34\x12")},
			{Name: ".debug_sup", Content: []byte("\x05\x00\x01\x00\x02\xab\xcd")},
			{Name: ".gnu_debugdata", Content: []byte("\xfd7zXZ\x00\x00\x04")},
			{Name: ".debug_info", Flags: elf.SHF_COMPRESSED, Content: compressed(f, elf.COMPRESS_ZSTD, []byte("info"), 4)},
			{Name: ".debug_line", Flags: elf.SHF_COMPRESSED, Content: compressed(f, elf.COMPRESS_ZLIB, []byte("line"), 4)},
		},
	}.Bytes())
	if self, err := os.ReadFile("/proc/self/exe"); err == nil {
		f.Add(self[:4096])
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		file, err := New(bytes.NewReader(content), int64(len(content)), "fuzz")
		if err != nil {
			return
		}
		defer file.Close()
		file.limit = 4 << 20 // keeps decompression bombs short
		sections, _ := file.Sections()
		for _, s := range sections {
			data, err := s.Open()
			if err == nil && data.Size() > max(int64(file.limit), int64(len(content))) {
				t.Errorf("%s: got %d bytes, want at most %d", s.Name, data.Size(), max(int64(file.limit), int64(len(content))))
			}
			if s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_DYNSYM {
				names := file.SymbolNames(s)
				_ = file.EachSymbol(s, func(sym Symbol) bool {
					return names == nil || len(names.At(uint64(sym.Name))) <= maxString
				})
			}
		}
		file.BuildID()
		_, _ = file.DebugLink()
		_, _ = file.AltLink()
		file.AltID()
		_, _ = file.Embedded()
		_, _ = file.PLT()
	})
}
