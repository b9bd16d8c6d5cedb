package dwarf

import (
	"bytes"
	"encoding/binary"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"fulgur/internal/symbols/dwarfdata"
	"fulgur/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite testdata/*.sections")

// sectionList returns the sections that fuzzing varies.
func sectionList(s *Sections) []*Section {
	return []*Section{
		&s.Info, &s.Abbrev, &s.Aranges, &s.Line, &s.LineStr, &s.Str,
		&s.StrOffsets, &s.Addr, &s.Ranges, &s.RngLists,
	}
}

// packSections concatenates sections, each preceded by its length.
func packSections(s *Sections) []byte {
	var out []byte
	for _, sec := range sectionList(s) {
		var b []byte
		if *sec != nil {
			b = content(*sec)
		}
		out = binary.LittleEndian.AppendUint32(out, uint32(len(b)))
		out = append(out, b...)
	}
	return out
}

func unpackSections(b []byte) *Sections {
	s := &Sections{Name: "fuzz"}
	r := dwarfdata.Reader{Data: b}
	for _, sec := range sectionList(s) {
		*sec = bytes.NewReader(r.Take(uint64(r.U32())))
	}
	return s
}

// TestSeeds writes the seeds of the fuzz tests if -update is set: the debug info of leaf.c
// from several compilers.
func TestSeeds(t *testing.T) {
	if !*update {
		testenv.Unsupported(t, "writes files with -update only")
	}
	for _, b := range []build{
		{name: "gcc4", cc: "gcc", flags: "-gdwarf-4 -O2"},
		{name: "gcc5", cc: "gcc", flags: "-gdwarf-5 -O2"},
		{name: "clang4", cc: "clang-19", flags: "-gdwarf-4 -O2"},
		{name: "clang5", cc: "clang-19", flags: "-gdwarf-5 -O2"},
	} {
		dir := t.TempDir()
		args := []string{"-nostdlib", "-shared", "-o", "leaf.so", "leaf.c"}
		for _, f := range []string{"-fPIC", "-gno-record-gcc-switches"} {
			if b.cc == "gcc" || f == "-fPIC" {
				args = append(args, f)
			}
		}
		src, err := os.ReadFile("testdata/leaf.c")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "leaf.c"), src, 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-fdebug-prefix-map="+dir+"=/src", "-O2", b.flags[:9])
		command(t, dir, b.cc, args...)
		packed := packSections(openSections(t, filepath.Join(dir, "leaf.so"), ""))
		if err := os.WriteFile(filepath.Join("testdata", b.name+".sections"), packed, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// seeds returns the sections that TestSeeds wrote.
func seeds(f *testing.F) []*Sections {
	f.Helper()
	paths, err := filepath.Glob("testdata/*.sections")
	if err != nil || len(paths) == 0 {
		f.Fatal("no seeds: ", err)
	}
	var all []*Sections
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, unpackSections(b))
	}
	return all
}

func content(s Section) []byte {
	b, _ := io.ReadAll(io.NewSectionReader(s, 0, s.Size()))
	return b
}

// FuzzLookup reads arbitrary units, entries, abbreviations, ranges and lines.
func FuzzLookup(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(content(s.Info), content(s.Abbrev), content(s.Aranges), content(s.Line),
			content(s.Str), content(s.StrOffsets), content(s.Addr), content(s.Ranges), content(s.RngLists))
	}
	f.Fuzz(func(t *testing.T, info, abbrev, aranges, line, str, strOffsets, addr, ranges, rnglists []byte) {
		sections := func() *Sections {
			return &Sections{
				Name:       "fuzz",
				Info:       bytes.NewReader(info),
				Abbrev:     bytes.NewReader(abbrev),
				Aranges:    bytes.NewReader(aranges),
				Line:       bytes.NewReader(line),
				LineStr:    bytes.NewReader(str),
				Str:        bytes.NewReader(str),
				StrOffsets: bytes.NewReader(strOffsets),
				Addr:       bytes.NewReader(addr),
				Ranges:     bytes.NewReader(ranges),
				RngLists:   bytes.NewReader(rnglists),
			}
		}
		s := sections()
		s.Alt = sections()
		d, _ := Open(s, Options{
			Workers: 1,
			Budget:  1,
			Split:   func(SplitUnit) (*Sections, error) { return s, nil },
		})
		var addrs []uint64
		for i, lo := range d.index.lo {
			if i == 64 {
				break
			}
			for a := uint64(0); a < 256; a += 5 {
				addrs = append(addrs, lo+a)
			}
		}
		for range 2 { // the second round reads whole functions
			got, _ := d.LookupBatch(addrs)
			if len(got) != len(addrs) {
				t.Fatalf("got %d results, want %d", len(got), len(addrs))
			}
			for i := range addrs {
				addrs[i]++
			}
		}
	})
}

// FuzzLines runs line programs. The row of an address must not have a higher address.
func FuzzLines(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(content(s.Line))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		u := &unit{
			file:   newFile(&Sections{Name: "fuzz", Line: bytes.NewReader(b), LineStr: bytes.NewReader(b)}),
			header: header{format: format{version: 5, addrSize: 8, offsetSize: 4}},
		}
		lines, _, err := u.readLines(nil)
		if err != nil {
			return
		}
		for i, lo := range lines.index.lo {
			if i == 64 {
				break
			}
			r, ok := lines.find(lo)
			if !ok {
				continue
			}
			if r.addr > lo {
				t.Fatalf("%#x: got a row at %#x", lo, r.addr)
			}
			lines.path(u, r.file)
		}
	})
}

// FuzzRanges decodes range lists of versions 4 and 5.
func FuzzRanges(f *testing.F) {
	f.Add([]byte{rleStartLength, 0, 16, 0, 0, 0, 0, 0, 0, 8, rleOffsetPair, 4, 9, rleEndOfList}, uint64(4096))
	f.Add(make([]byte, 32), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, low uint64) {
		s := &Sections{
			Name: "fuzz", Ranges: bytes.NewReader(b), RngLists: bytes.NewReader(b), Addr: bytes.NewReader(b),
		}
		for version := uint16(4); version <= 5; version++ {
			u := &unit{file: newFile(s), header: header{format: format{version: version, addrSize: 8, offsetSize: 4}}}
			u.root.addrFile = u.file
			u.root.lowPC = low
			spans, _ := u.rangeList(nil, value{form: formSecOffset}, 1)
			for _, sp := range spans {
				if sp.lo >= sp.hi || u.dead(sp.lo) {
					t.Fatalf("dead range %+v", sp)
				}
			}
			paint(spans)
		}
	})
}

// FuzzUnitIndex decodes .debug_cu_index. Each unit takes a slot of 12 bytes.
func FuzzUnitIndex(f *testing.F) {
	var b []byte
	for _, v := range []uint32{5, 2, 1, 1, 7, 0, 1, 1, 3, 0, 0, 16, 8} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		x, problem := parseUnitIndex(b)
		if (x == nil) != (problem != "") {
			t.Fatalf("index %v with problem %q", x, problem)
		}
		if x != nil && len(x.units) > len(b)/12 {
			t.Fatalf("%d units in %d bytes", len(x.units), len(b))
		}
	})
}
