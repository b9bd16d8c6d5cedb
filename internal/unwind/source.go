package unwind

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"fulgur/internal/symbols/dwarfdata"
	"fulgur/internal/symbols/elffile"
)

// source is a section with call frame information.
type source struct {
	r    io.ReaderAt
	size uint64
	file *elffile.File
	name string
	// addr is the section's link-time virtual address. data is the base of its
	// data-relative pointers.
	addr, data uint64
	// eh is true for .eh_frame and false for .debug_frame.
	eh       bool
	addrSize uint8
	arch     *arch
}

func (s *source) errorf(off uint64, format string, args ...any) error {
	return fmt.Errorf("%s: %s at offset %#x: %s", s.file.Name(), s.name, off, fmt.Sprintf(format, args...))
}

// openSection returns the named section, or nil if f does not have it or it is empty.
func openSection(f *elffile.File, a *arch, name string) (*source, error) {
	sec := f.Section(name)
	if sec == nil {
		return nil, nil
	}
	data, err := sec.Open()
	if errors.Is(err, elffile.ErrNoContents) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read unwind information: %w", err)
	}
	s := &source{
		r: data, size: uint64(data.Size()), file: f, name: name, addr: sec.Addr,
		eh: name == ".eh_frame", addrSize: uint8(f.WordSize()), arch: a,
	}
	if got := f.Section(".got"); got != nil {
		s.data = got.Addr
	}
	return s, nil
}

// openEH returns .eh_frame. In a file without section headers it finds it through the
// program header that the dynamic loader and exceptions use.
func openEH(f *elffile.File, a *arch) (*source, error) {
	s, err := openSection(f, a, ".eh_frame")
	if s != nil || err != nil {
		return s, err
	}
	if sections, err := f.Sections(); err == nil && len(sections) > 0 {
		return nil, nil
	}
	for _, seg := range f.Segments() {
		if seg.Type == elf.PT_GNU_EH_FRAME {
			return openByHeader(f, a, seg)
		}
	}
	return nil, nil
}

// openByHeader reads the start of .eh_frame_hdr (Linux Standard Base): a version, three
// encodings, and a pointer to .eh_frame. The header does not contain the section's end,
// so the segment's end bounds it.
func openByHeader(f *elffile.File, a *arch, seg elffile.Segment) (*source, error) {
	const least = 4 + 8
	header, err := f.Bytes(int64(seg.Offset), min(seg.FileSize, least), ".eh_frame_hdr")
	if err != nil {
		return nil, fmt.Errorf("read unwind information: %w", err)
	}
	r := dwarfdata.Reader{Data: header}
	version := r.U8()
	enc := r.U8()
	r.Take(2)
	addr := readPointer(&r, enc, uint8(f.WordSize()), seg.Addr, seg.Addr)
	if version != 1 || r.Bad {
		return nil, f.Errorf(int64(seg.Offset), "unknown form of .eh_frame_hdr")
	}
	for _, load := range f.Segments() {
		if load.Type == elf.PT_LOAD && addr-load.Addr < load.FileSize {
			off := load.Offset + addr - load.Addr
			size := min(load.FileSize-(addr-load.Addr), uint64(max(f.Size()-int64(off), 0)))
			return &source{
				r: io.NewSectionReader(f.Reader(), int64(off), int64(size)), size: size,
				file: f, name: ".eh_frame", addr: addr, eh: true, addrSize: uint8(f.WordSize()), arch: a,
			}, nil
		}
	}
	return nil, f.Errorf(int64(seg.Offset), ".eh_frame_hdr points to %#x, which is not in the file", addr)
}

// entry is a CIE or an FDE.
type entry struct {
	// off is the entry's offset in the section. body is the offset after the length; in
	// .eh_frame the pointer to the CIE is relative to it.
	off, body uint64
	// id distinguishes a CIE; in an FDE it is the pointer to its CIE.
	id     uint64
	isCIE  bool
	idSize uint8
	buf    dwarfdata.Reader // the bytes after the id
	// base is the address of the first byte of buf, if any.
	base uint64
}

// header parses the length of the entry at the start of b. It returns the size of the
// length field and the number of bytes after it. ok is false if b is too short.
func header(b []byte) (lengthSize, length uint64, ok bool) {
	r := dwarfdata.Reader{Data: b}
	length = r.Word(4)
	lengthSize = 4
	if length == 0xffffffff {
		length = r.Word(8)
		lengthSize = 12
	}
	return lengthSize, length, !r.Bad
}

// entry parses the entry at offset off of the section, all of which is in b.
func (s *source) entry(b []byte, off uint64) (entry, bool) {
	lengthSize, length, ok := header(b)
	if !ok || length > uint64(len(b))-lengthSize {
		return entry{}, false
	}
	e := entry{off: off, body: off + lengthSize, idSize: 4}
	r := dwarfdata.Reader{Data: b[lengthSize : lengthSize+length]}
	if lengthSize == 12 && !s.eh {
		e.idSize = 8
	}
	e.id = r.Word(e.idSize)
	switch {
	case s.eh:
		e.isCIE = e.id == 0
	case e.idSize == 4:
		e.isCIE = e.id == 0xffffffff
	default:
		e.isCIE = e.id == 1<<64-1
	}
	e.buf = dwarfdata.Reader{Data: r.Data[r.Pos:]}
	e.base = s.addr + e.body + uint64(e.idSize)
	return e, !r.Bad
}

// cieOffset returns the offset of an FDE's CIE.
func (s *source) cieOffset(e *entry) uint64 {
	if s.eh {
		return e.body - e.id
	}
	return e.id
}
