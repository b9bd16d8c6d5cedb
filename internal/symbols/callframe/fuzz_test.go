package callframe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/elffile/elftest"
)

// Addresses of the sections in synthetic files.
const (
	textAddr, textSize    = 0x401000, 0x1000
	headerAddr, frameAddr = 0x500000, 0x600000
)

// countingReader counts the bytes read.
type countingReader struct {
	io.ReaderAt
	read int
}

func (r *countingReader) ReadAt(b []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(b, off)
	r.read += n
	return n, err
}

// made returns a synthetic file with the given sections.
func made(t testing.TB, header, frame, debug []byte) (*elffile.File, *countingReader) {
	t.Helper()
	load := func(section int, flags elf.ProgFlag) elftest.Segment {
		return elftest.Segment{Type: elf.PT_LOAD, Section: section, Prog64: elf.Prog64{Flags: uint32(flags)}}
	}
	b := elftest.File{
		Machine:  elf.EM_X86_64,
		Segments: []elftest.Segment{load(1, elf.PF_X), load(2, 0), load(3, 0), {Type: elf.PT_GNU_EH_FRAME, Section: 2}},
		Sections: []elftest.Section{
			{Name: ".text", Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: textAddr, Content: make([]byte, textSize)},
			{Name: ".eh_frame_hdr", Addr: headerAddr, Content: header},
			{Name: ".eh_frame", Addr: frameAddr, Content: frame},
			{Name: ".debug_frame", Content: debug},
		},
	}.Bytes()
	r := &countingReader{ReaderAt: bytes.NewReader(b)}
	f, err := elffile.New(r, int64(len(b)), "made-up")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, r
}

// sections returns .eh_frame_hdr and .eh_frame with an FDE for each function, given by
// start and size.
func sections(functions ...[2]uint32) (header, frame []byte) {
	frame = []byte{16, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, pePCRel | peSdata4, 0, 0, 0}
	header = []byte{1, pePCRel | peSdata4, peUdata4, tableEncoding}
	header = binary.LittleEndian.AppendUint32(header, frameAddr-headerAddr-4)
	header = binary.LittleEndian.AppendUint32(header, uint32(len(functions)))
	for _, f := range functions {
		header = binary.LittleEndian.AppendUint32(header, f[0]-headerAddr)
		header = binary.LittleEndian.AppendUint32(header, frameAddr-headerAddr+uint32(len(frame)))
		frame = binary.LittleEndian.AppendUint32(frame, 16)
		frame = binary.LittleEndian.AppendUint32(frame, uint32(len(frame)))
		frame = binary.LittleEndian.AppendUint32(frame, f[0]-frameAddr-uint32(len(frame)))
		frame = binary.LittleEndian.AppendUint32(frame, f[1])
		frame = append(frame, 0, 0, 0, 0)
	}
	return header, append(frame, 0, 0, 0, 0)
}

// TestFind finds functions with gaps between them, a nested function, a function whose end
// overflows, an empty function, and functions that the linker dropped, with and without a
// search table.
func TestFind(t *testing.T) {
	functions := [][2]uint32{{0, 16}, {textAddr, 0x40}, {textAddr + 0x10, 0x10}, {textAddr + 0x80, 0x20}, {textAddr + 0x200, 0}, {textAddr + 0x300, 1<<32 - 1}, {0x700000, 16}}
	header, frame := sections(functions...)
	for _, header := range [][]byte{header, nil} {
		f, _ := made(t, header, frame, nil)
		addrs := []uint64{textAddr - 1, textAddr, textAddr + 0xf, textAddr + 0x10, textAddr + 0x30, textAddr + 0x80, textAddr + 0x9f, textAddr + 0xa0, textAddr + 0x301, 0x700008}
		got, err := Find(f, addrs)
		if err != nil {
			t.Error(err)
		}
		want := []Bounds{
			{Above: textAddr}, {Start: textAddr, End: textAddr + 0x40}, {Start: textAddr, End: textAddr + 0x40}, {Start: textAddr + 0x10, End: textAddr + 0x20},
			{Below: textAddr + 0x20, Above: textAddr + 0x80}, {Start: textAddr + 0x80, End: textAddr + 0xa0}, {Start: textAddr + 0x80, End: textAddr + 0xa0}, {Below: textAddr + 0xa0},
			{Below: textAddr + 0xa0}, {Below: textAddr + 0xa0},
		}
		if header != nil {
			want[7].Above = textAddr + 0x200 // only the FDE has the size
			want[8], want[9] = Bounds{Above: 0x700000}, Bounds{}
		}
		compare(t, "made-up", addrs, got, want)
	}
}

// TestDamage uses search tables with wrong entries. Addresses get no bounds from them,
// and the error contains the offset.
func TestDamage(t *testing.T) {
	const entry = 12 // offset of the first one
	for name, test := range map[string]struct {
		damage func(header, frame []byte)
		want   string
	}{
		"another start": {func(header, _ []byte) { header[entry]++ }, "does not match"},
		"no FDE":        {func(header, _ []byte) { header[entry+4] -= 20 }, "no FDE there"},
		"beyond":        {func(header, _ []byte) { header[entry+7] = 0x7f }, "no FDE there"},
		"no CIE":        {func(_, frame []byte) { frame[24]++ }, "no CIE there"},
		"CIE":           {func(_, frame []byte) { frame[8] = 2 }, "unknown version"},
	} {
		header, frame := sections([2]uint32{textAddr + 8, 64})
		test.damage(header, frame)
		f, _ := made(t, header, frame, nil)
		got, err := Find(f, []uint64{textAddr + 16})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want %q", name, err, test.want)
		}
		if got[0].Start != 0 {
			t.Errorf("%s: got a function at %#x, want none", name, got[0].Start)
		}
	}
}

// TestUnknownHeader uses headers without a usable table. Find then reads .eh_frame itself.
func TestUnknownHeader(t *testing.T) {
	for name, damage := range map[string]func([]byte){
		"version":  func(h []byte) { h[0] = 2 },
		"encoding": func(h []byte) { h[3] = peSdata4; h[12]++ },
		"no table": func(h []byte) { h[2], h[3] = peOmit, peOmit; h[12]++ },
		"count":    func(h []byte) { h[11] = 0x7f },
		"pointer":  func(h []byte) { h[4]++ },
	} {
		header, frame := sections([2]uint32{textAddr + 8, 64})
		damage(header)
		f, _ := made(t, header, frame, nil)
		got, err := Find(f, []uint64{textAddr + 16})
		if err != nil || got[0].Start != textAddr+8 {
			t.Errorf("%s: got %+v, %v; want start %#x", name, got, err, textAddr+8)
		}
	}
}

// sparse is a file that ends in a hole.
type sparse struct{ head []byte }

func (s sparse) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	if off < int64(len(s.head)) {
		copy(b, s.head[off:])
	}
	return len(b), nil
}

// TestTooLarge checks that huge sections with holes are refused without being read.
func TestTooLarge(t *testing.T) {
	const size = 1 << 40
	for _, name := range []string{".eh_frame", ".debug_frame"} {
		b := elftest.File{Machine: elf.EM_X86_64, Sections: []elftest.Section{{Name: name, Content: make([]byte, 8)}}}.Bytes()
		// Elf64_Ehdr.e_shoff, and Elf64_Shdr.sh_size of the first section.
		binary.LittleEndian.PutUint64(b[binary.LittleEndian.Uint64(b[40:])+64+32:], MaxSize+1)
		f, err := elffile.New(sparse{b}, size, "made-up")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Find(f, []uint64{textAddr}); err == nil || !strings.Contains(err.Error(), name+" are more than any program has") {
			t.Errorf("%s: got %v, want %q in it", name, err, name+" are more than any program has")
		}
	}
	// Without section headers, the size comes from the segment.
	header, frame := sections([2]uint32{textAddr, 0x40})
	b := elftest.File{
		Machine: elf.EM_X86_64,
		Segments: []elftest.Segment{
			{Type: elf.PT_LOAD, Section: 1, Prog64: elf.Prog64{Flags: uint32(elf.PF_X)}},
			{Type: elf.PT_LOAD, Section: 2},
			{Type: elf.PT_GNU_EH_FRAME, Section: 1},
		},
		Sections: []elftest.Section{
			{Name: ".eh_frame_hdr", Addr: headerAddr, Content: header},
			{Name: ".eh_frame", Addr: frameAddr, Content: frame},
		},
	}.Bytes()
	binary.LittleEndian.PutUint64(b[40:], 0)                                           // e_shoff
	binary.LittleEndian.PutUint32(b[58:], 0)                                           // e_shentsize, e_shnum
	binary.LittleEndian.PutUint64(b[binary.LittleEndian.Uint64(b[32:])+56+32:], 1<<39) // p_filesz
	f, err := elffile.New(sparse{b}, size, "made-up")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := OpenEH(f); err != nil || s.Size != MaxSize {
		t.Errorf("%+v, %v", s, err)
	}
}

// FuzzFind finds bounds in arbitrary sections. Bounds enclose their address and do not
// depend on the other addresses. Find does not read more bytes than the sections have,
// except for overlapping CIEs.
func FuzzFind(f *testing.F) {
	header, frame := sections([2]uint32{textAddr, 0x40}, [2]uint32{textAddr + 0x10, 0x10}, [2]uint32{textAddr + 0x80, 0x20})
	f.Add(header, frame, []byte(nil))
	f.Add([]byte(nil), frame, []byte(nil))
	debug := slices.Concat([]byte{12, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, 16, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0},
		binary.LittleEndian.AppendUint64(nil, textAddr+0x50), binary.LittleEndian.AppendUint64(nil, 0x20))
	f.Add(header, frame, debug)
	f.Add([]byte(nil), []byte(nil), debug)
	f.Fuzz(func(t *testing.T, header, frame, debug []byte) {
		file, r := made(t, header, frame, debug)
		var addrs []uint64
		for addr := uint64(textAddr) - 8; addr < textAddr+textSize+8; addr += 8 {
			addrs = append(addrs, addr)
		}
		all, _ := Find(file, addrs)
		if limit := (len(frame)+len(debug))*maxCIE/8 + 100*len(header) + len(addrs)*maxCIE + 1<<16; r.read > limit {
			t.Errorf("got %d bytes read of sections of %d, %d and %d bytes", r.read, len(header), len(frame), len(debug))
		}
		for i, addr := range addrs {
			b := all[i]
			if b.Start > addr || b.Below > addr || b.Above != 0 && b.Above <= addr || b.Start != 0 && (b.Below != 0 || b.Above != 0) {
				t.Errorf("%#x: got %#x", addr, b)
			}
			if i%16 != 0 {
				continue
			}
			if one, _ := Find(file, addrs[i:i+1]); one[0] != b {
				t.Errorf("%#x: got %#x alone, %#x among others", addr, one[0], b)
			}
		}
	})
}
