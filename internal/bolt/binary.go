package bolt

import (
	"debug/elf"
	"fmt"
	"math"

	"fulgur/internal/symbols/elffile"
)

// Binary is an ELF file whose branches are counted. It belongs to the [Collector] that it
// is registered with.
type Binary struct {
	// Name is the file name to pass to llvm-bolt.
	Name string
	// BuildID is the file's GNU build ID in hexadecimal, or "" if it has none.
	BuildID string
	// ExecutableBytes is the number of bytes of machine code in the file.
	ExecutableBytes uint64
	// Symbols is whether the file has a symbol table, which llvm-bolt requires. Relocations
	// is whether it has the relocations of its code (--emit-relocs), which llvm-bolt needs to
	// move functions.
	Symbols, Relocations bool
	// Optimized is whether llvm-bolt wrote the file.
	Optimized bool

	fixed bool              // linked at a fixed address (ET_EXEC)
	whole bool              // the whole file counts as code, see NewMapped
	code  []elffile.Segment // executable PT_LOAD segments
	base  uint64            // lowest address of code

	linked map[string]uint64 // kernel: link-time addresses of kernelSymbols

	id    uint32 // in its Collector; 0 before it is registered
	stats BinaryStats
}

// NewBinary describes the executable or shared object f, which may be closed
// afterwards.
func NewBinary(f *elffile.File) (*Binary, error) {
	b := &Binary{Name: f.Name(), BuildID: f.BuildID(), fixed: f.Type() == elf.ET_EXEC, base: math.MaxUint64}
	var end uint64
	for _, s := range f.Segments() {
		if s.Type != elf.PT_LOAD || s.Flags&elf.PF_X == 0 || s.FileSize == 0 {
			continue
		}
		if s.Addr+s.FileSize < s.Addr || s.Offset+s.FileSize < s.Offset {
			return nil, f.Errorf(int64(s.Offset), "executable segment beyond the address space")
		}
		b.code = append(b.code, s)
		b.base = min(b.base, s.Addr)
		end = max(end, s.Addr+s.FileSize)
	}
	if len(b.code) == 0 {
		return nil, fmt.Errorf("%s: no executable segment", f.Name())
	}
	if end-b.base >= math.MaxUint32 {
		return nil, fmt.Errorf("%s: machine code spread over more than 4 GiB", f.Name())
	}
	err := b.readSections(f)
	if err != nil {
		return nil, err
	}
	if !b.Kernel() {
		return b, nil
	}
	if b.linked, err = f.SymbolValues(kernelSymbols[:]...); err != nil {
		return nil, err
	}
	return b, nil
}

// NewMapped describes a file if only its name is known. Each of its mappings is a
// region, and [Region.Address] returns the file offset. It has no profile.
func NewMapped(name, buildID string) *Binary {
	return &Binary{Name: name, BuildID: buildID, whole: true}
}

// readSections determines how llvm-bolt can use the file and adds up the machine code: the
// executable sections or, if sections are stripped, the segments, which may also contain
// read-only data.
func (b *Binary) readSections(f *elffile.File) error {
	sections, err := f.Sections()
	if err != nil {
		return err
	}
	for _, s := range sections {
		switch {
		case s.Flags&elf.SHF_EXECINSTR != 0 && s.Type == elf.SHT_PROGBITS:
			b.ExecutableBytes += min(s.Size, uint64(f.Size()))
		case s.Type == elf.SHT_SYMTAB:
			b.Symbols = true
		case s.Type == elf.SHT_RELA && s.Name == ".rela.text":
			b.Relocations = true
		case s.Name == ".note.bolt_info":
			b.Optimized = true
		}
	}
	if b.ExecutableBytes > 0 {
		return nil
	}
	for _, s := range b.code {
		b.ExecutableBytes += s.FileSize
	}
	return nil
}

// Region returns the region of the file's code in a mapping of size bytes at address start,
// from offset in the file. It reports false if the mapping contains no code.
//
// The load bias comes from the executable segment in the mapping, as in BOLT since LLVM
// 20. Older versions used the first segment, which is wrong if code and read-only data
// share a page of the file.
func (b *Binary) Region(start, size, offset uint64) (Region, bool) {
	end, last := start+size, offset+size
	if end < start || last < offset {
		return Region{}, false
	}
	if b.whole {
		return Region{Start: start, End: end, Binary: b, bias: start - offset}, true
	}
	for _, s := range b.code {
		if offset < s.Offset+s.FileSize && s.Offset < last {
			return Region{Start: start, End: end, Binary: b, bias: start - offset + s.Offset - s.Addr}, true
		}
	}
	return Region{}, false
}

// FixedLayout returns the layout of a process that runs a binary linked at a fixed
// address, or an empty one for other binaries.
func (b *Binary) FixedLayout() Layout {
	if !b.fixed || b.Kernel() { // the kernel relocates itself
		return Layout{}
	}
	var l Layout
	for _, s := range b.code {
		l = l.With(Region{Start: s.Addr, End: s.Addr + s.FileSize, Binary: b})
	}
	return l
}

// offset returns the key of the link-time address addr: its distance from the file's
// first code plus 1, or 0 outside the code.
func (b *Binary) offset(addr uint64) uint32 {
	// Addresses below the base wrap around to large numbers.
	if d := addr - b.base; d < math.MaxUint32 {
		return uint32(d) + 1
	}
	return 0
}

// address is the inverse of offset; 0 stays 0.
func (b *Binary) address(offset uint32) uint64 {
	if offset == 0 {
		return 0
	}
	return b.base + uint64(offset) - 1
}
