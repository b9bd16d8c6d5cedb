package symbolize

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Limits on what the headers of a file may ask for. Real files stay far
// below.
const (
	maxSegments = 1 << 12
	maxSections = 1 << 16
	maxNotes    = 64 << 10
	maxBuildID  = 64
)

// ELF is an ELF file: an executable, a shared library, a vdso. It implements
// [Table] on link-time virtual addresses, see [ELF.Address]. It keeps only
// the segments and, once asked for a name, the sections; the file's reader
// must stay open for as long as names are asked for.
type ELF struct {
	r    io.ReaderAt
	size int64
	name string
	opts Options

	is64     bool
	typ      elf.Type
	machine  elf.Machine
	segments []segment // the PT_LOAD ones
	buildID  string

	shoff            int64
	shnum            int
	shentsize, shstr int
	sectionsOnce     sync.Once
	sections         []section
	sectionsErr      error
}

// segment is a PT_LOAD program header.
type segment struct {
	vaddr, off, filesz uint64
	exec               bool
}

// OpenELF reads the headers of the ELF file r, which is size bytes long; name
// is used in errors. Symbols are read when they are first asked for. The
// format is that of the System V gABI; both classes are read, little-endian
// only, since no other code runs on the machines that fulgur supports.
func OpenELF(r io.ReaderAt, size int64, name string, opts Options) (*ELF, error) {
	e := &ELF{r: r, size: size, name: name, opts: opts}
	var ident [64]byte
	n := min(size, int64(len(ident)))
	if err := e.readAt(ident[:n], 0, "ELF header"); err != nil {
		return nil, err
	}
	if n < 52 || string(ident[:4]) != elf.ELFMAG {
		return nil, e.errorf(0, "not an ELF file")
	}
	if elf.Data(ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, e.errorf(elf.EI_DATA, "byte order is not little-endian")
	}
	switch class := elf.Class(ident[elf.EI_CLASS]); class {
	case elf.ELFCLASS64:
		e.is64 = true
		if n < 64 {
			return nil, e.errorf(0, "truncated ELF header")
		}
	case elf.ELFCLASS32:
	default:
		return nil, e.errorf(elf.EI_CLASS, fmt.Sprintf("unknown ELF class %d", class))
	}

	h := fields{ident[:], e.is64}
	e.typ = elf.Type(h.half(16, 16))
	e.machine = elf.Machine(h.half(18, 18))
	phoff := int64(h.word(28, 32))
	e.shoff = int64(h.word(32, 40))
	phentsize, phnum := h.half(42, 54), h.half(44, 56)
	e.shentsize, e.shnum, e.shstr = h.half(46, 58), h.half(48, 60), h.half(50, 62)
	if err := e.readSegments(phoff, phentsize, phnum); err != nil {
		return nil, err
	}
	return e, nil
}

// readSegments reads the program headers, and the build ID from the notes
// among them.
func (e *ELF) readSegments(off int64, entsize, num int) error {
	if num == 0 {
		return nil
	}
	if want := e.pick(32, 56); entsize < want || num > maxSegments {
		return e.errorf(off, fmt.Sprintf("unlikely program headers (%d of %d bytes)", num, entsize))
	}
	table, err := e.read(off, uint64(num)*uint64(entsize), "program headers")
	if err != nil {
		return err
	}
	for ; len(table) > 0; table = table[entsize:] {
		h := fields{table, e.is64}
		flags := elf.ProgFlag(h.uint32(24, 4))
		offset, vaddr := h.word(4, 8), h.word(8, 16)
		filesz, align := h.word(16, 32), h.word(28, 48)
		switch elf.ProgType(h.uint32(0, 0)) {
		case elf.PT_LOAD:
			e.segments = append(e.segments, segment{vaddr, offset, filesz, flags&elf.PF_X != 0})
		case elf.PT_NOTE:
			// A file without a readable build ID is still worth its
			// symbols.
			if e.buildID == "" && filesz <= maxNotes {
				if notes, err := e.read(int64(offset), filesz, "notes"); err == nil {
					e.buildID = buildID(notes, align)
				}
			}
		}
	}
	return nil
}

// buildID returns the GNU build ID among notes, whose parts are aligned to
// align bytes, or "".
func buildID(notes []byte, align uint64) string {
	const headerSize, ntGNUBuildID = 12, 3
	if align != 8 {
		align = 4
	}
	round := func(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }
	for len(notes) >= headerSize {
		namesz := uint64(binary.LittleEndian.Uint32(notes))
		descsz := uint64(binary.LittleEndian.Uint32(notes[4:]))
		typ := binary.LittleEndian.Uint32(notes[8:])
		desc := round(headerSize + namesz)
		if desc+descsz > uint64(len(notes)) {
			return ""
		}
		name := notes[headerSize : headerSize+namesz]
		if typ == ntGNUBuildID && string(name) == "GNU\x00" && descsz <= maxBuildID {
			return hex.EncodeToString(notes[desc : desc+descsz])
		}
		notes = notes[min(round(desc+descsz), uint64(len(notes))):]
	}
	return ""
}

// BuildID returns the GNU build ID in lower-case hex, or "" if the file has
// none.
func (e *ELF) BuildID() string { return e.buildID }

// Address returns the link-time virtual address of the byte at fileOffset, as
// the executable segments place it. It reports false for an offset that no
// executable segment holds.
func (e *ELF) Address(fileOffset uint64) (vaddr uint64, ok bool) {
	for _, s := range e.segments {
		if s.exec && fileOffset >= s.off && fileOffset-s.off < s.filesz {
			return s.vaddr + (fileOffset - s.off), true
		}
	}
	return 0, false
}

// HasSymbols reports whether the file holds any table of function names.
func (e *ELF) HasSymbols() bool {
	if e.loadSections() != nil {
		return false
	}
	for _, s := range e.sections {
		if s.size > 0 && (s.typ == elf.SHT_SYMTAB || s.typ == elf.SHT_DYNSYM || s.goTable) {
			return true
		}
	}
	return false
}

// LookupBatch implements [Table] on link-time virtual addresses. Go's own
// table is asked first, since it is exact, then .symtab, then .dynsym.
func (e *ELF) LookupBatch(addrs []uint64) ([][]Frame, error) {
	frames := make([][]Frame, len(addrs))
	if err := e.loadSections(); err != nil {
		return frames, err
	}
	var errs []error
	for _, lookup := range []func([]uint64, [][]Frame) error{
		e.lookupGo,
		func(addrs []uint64, frames [][]Frame) error { return e.lookupSymbols(elf.SHT_SYMTAB, addrs, frames) },
		func(addrs []uint64, frames [][]Frame) error { return e.lookupSymbols(elf.SHT_DYNSYM, addrs, frames) },
	} {
		var todo []int
		var open []uint64
		for i, f := range frames {
			if f == nil {
				todo, open = append(todo, i), append(open, addrs[i])
			}
		}
		if len(todo) == 0 {
			break
		}
		found := make([][]Frame, len(open))
		if err := lookup(open, found); err != nil {
			errs = append(errs, err)
		}
		for i, f := range found {
			frames[todo[i]] = f
		}
	}
	return frames, errors.Join(errs...)
}

// read returns n bytes from offset off. Nothing is allocated for what lies
// outside of the file, whatever a header asks for. what names the structure in
// errors.
func (e *ELF) read(off int64, n uint64, what string) ([]byte, error) {
	if err := e.check(off, n, what); err != nil {
		return nil, err
	}
	buf := make([]byte, n)
	return buf, e.readAt(buf, off, what)
}

// check returns an error unless n bytes at off lie within the file.
func (e *ELF) check(off int64, n uint64, what string) error {
	if off < 0 || off > e.size || n > uint64(e.size-off) {
		return e.errorf(off, what+" lies outside of the file")
	}
	return nil
}

// readAt fills buf from offset off.
func (e *ELF) readAt(buf []byte, off int64, what string) error {
	if err := e.check(off, uint64(len(buf)), what); err != nil {
		return err
	}
	if n, err := e.r.ReadAt(buf, off); n < len(buf) {
		return fmt.Errorf("%s: reading %s at offset %#x: %w", e.name, what, off, err)
	}
	return nil
}

func (e *ELF) errorf(off int64, problem string) error {
	return &FormatError{File: e.name, Offset: off, Problem: problem}
}

// pick returns the one of two sizes or offsets that belongs to the class of
// the file.
func (e *ELF) pick(class32, class64 int) int {
	if e.is64 {
		return class64
	}
	return class32
}

// fields reads the fields of a structure that exists in both classes. Each
// method takes the field's offset in the 32-bit and in the 64-bit structure.
type fields struct {
	b    []byte
	is64 bool
}

func (f fields) at(class32, class64 int) []byte {
	if f.is64 {
		return f.b[class64:]
	}
	return f.b[class32:]
}

func (f fields) half(class32, class64 int) int {
	return int(binary.LittleEndian.Uint16(f.at(class32, class64)))
}

func (f fields) uint32(class32, class64 int) uint32 {
	return binary.LittleEndian.Uint32(f.at(class32, class64))
}

// word reads a field as wide as an address.
func (f fields) word(class32, class64 int) uint64 {
	if f.is64 {
		return binary.LittleEndian.Uint64(f.b[class64:])
	}
	return uint64(binary.LittleEndian.Uint32(f.b[class32:]))
}
