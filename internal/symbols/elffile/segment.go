package elffile

import (
	"debug/elf"
	"slices"
)

// Segment is a program header, which maps a part of the file.
type Segment struct {
	Type  elf.ProgType
	Flags elf.ProgFlag
	// Offset and FileSize are the part of the file, in bytes. In a separate debug file
	// they may be outside the file.
	Offset, FileSize uint64
	// Addr is the link-time virtual address, and MemSize the size in memory. Bytes beyond
	// FileSize are zero.
	Addr, MemSize uint64
	// Addr and Offset are congruent modulo Align.
	Align uint64
}

// Segments returns the program headers in file order. The caller must not modify them.
func (f *File) Segments() []Segment { return f.segments }

func (f *File) readSegments(off int64, entsize, num int) ([]Segment, error) {
	if num == 0 {
		return nil, nil
	}
	if entsize < f.pick(32, 56) || num > maxSegments {
		return nil, f.Errorf(off, "unlikely program headers (%d of %d bytes)", num, entsize)
	}
	table, err := f.Bytes(off, uint64(num)*uint64(entsize), "program headers")
	if err != nil {
		return nil, err
	}
	segments := make([]Segment, num)
	for i := range segments {
		h := fields{table[i*entsize:], f.is64}
		segments[i] = Segment{
			Type:     elf.ProgType(h.uint32(0, 0)),
			Flags:    elf.ProgFlag(h.uint32(24, 4)),
			Offset:   h.word(4, 8),
			Addr:     h.word(8, 16),
			FileSize: h.word(16, 32),
			MemSize:  h.word(20, 40),
			Align:    h.word(28, 48),
		}
	}
	return segments, nil
}

// Base returns the link-time virtual address of the lowest loaded segment, or 0 if
// nothing is loaded. Symbol servers use addresses relative to it.
func (f *File) Base() uint64 {
	base, found := uint64(0), false
	for _, s := range f.segments {
		if s.Type == elf.PT_LOAD && (!found || s.Addr < base) {
			base, found = s.Addr, true
		}
	}
	return base
}

// Address returns the link-time virtual address of the byte at fileOffset, according to
// the executable segments. ok is false if no executable segment contains the offset.
func (f *File) Address(fileOffset uint64) (addr uint64, ok bool) {
	for _, s := range f.segments {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 && fileOffset >= s.Offset && fileOffset-s.Offset < s.FileSize {
			return s.Addr + (fileOffset - s.Offset), true
		}
	}
	return 0, false
}

// Offset returns the file offset of the byte at a link-time virtual address. ok is false
// if the file has no byte for it.
func (f *File) Offset(addr uint64) (fileOffset uint64, ok bool) {
	for _, s := range f.segments {
		if s.Type == elf.PT_LOAD && addr >= s.Addr && addr-s.Addr < s.FileSize {
			return s.Offset + (addr - s.Addr), true
		}
	}
	return 0, false
}

// DataAddress returns the link-time virtual address of the byte at a distance from the beginning of a
// mapping of the file's variables, which begins at the file offset start. The byte may be beyond the end of
// the mapping: memory that is zero at first has no place in the file. page is the size of the process's
// pages. ok is false unless exactly one writable segment contains the byte. Variables that the loader makes
// read-only do not count.
func (f *File) DataAddress(start, distance, page uint64) (addr uint64, ok bool) {
	for _, s := range f.segments {
		if s.Type != elf.PT_LOAD || s.Flags&elf.PF_W == 0 || start < s.Offset&^(page-1) || start >= s.Offset+s.FileSize {
			continue
		}
		at := s.Addr + (start - s.Offset) + distance
		if at-s.Addr >= s.MemSize || f.readOnly(at) {
			continue
		}
		if ok {
			return 0, false
		}
		addr, ok = at, true
	}
	return addr, ok
}

// readOnly reports whether the loader makes an address read-only after it has relocated the file.
func (f *File) readOnly(addr uint64) bool {
	return slices.ContainsFunc(f.segments, func(s Segment) bool {
		return s.Type == elf.PT_GNU_RELRO && addr-s.Addr < s.MemSize
	})
}
