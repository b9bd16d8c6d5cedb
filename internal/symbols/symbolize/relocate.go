package symbolize

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"sort"

	"fulgur/internal/symbols/dwarf"
	"fulgur/internal/symbols/elffile"
)

// relocator relocates the debug sections of a relocatable file (ET_REL) as a linker does. In
// the file, their references to code and to each other are zero, and relocations contain the
// values (gABI, "Relocation"; x86-64 psABI 4.4; AArch64 ELF 5.7). Debug sections are at
// address 0, other sections at the addresses given by the caller.
type relocator struct {
	file     *elffile.File
	sections []*elffile.Section
	symbols  []uint64 // by symbol index
}

// newRelocator returns the relocator of file, whose sections were loaded at the given
// addresses by name. It returns nil for a file that needs no relocation.
func newRelocator(file *elffile.File, loaded map[string]uint64) (*relocator, error) {
	if file.Type() != elf.ET_REL {
		return nil, nil
	}
	sections, err := file.Sections()
	if err != nil {
		return nil, err
	}
	r := &relocator{file: file, sections: sections}
	table := openTable(file, elf.SHT_SYMTAB)
	if table == nil {
		return r, nil
	}
	err = file.EachSymbol(table.section, func(s elffile.Symbol) bool {
		addr := s.Value
		if int(s.Section) < len(sections) {
			addr += loaded[sections[s.Section].Name]
		}
		r.symbols = append(r.symbols, addr)
		return true
	})
	return r, err
}

// relaSize is the size of an Elf64_Rela: offset, type and symbol, addend.
const relaSize = 24

// relaStride is the number of relocations per offset in relocated.starts.
const relaStride = 512

// relocated is a section that is relocated while it is read. It does not keep the relocations
// in memory, because the relocations of a module can be larger than its sections.
type relocated struct {
	dwarf.Section
	by    *relocator
	relas *io.SectionReader
	count int
	// starts holds the offset of every relaStride-th relocation's target.
	starts []uint64
}

// section returns the relocated contents of s.
func (r *relocator) section(s *elffile.Section, contents dwarf.Section) (dwarf.Section, error) {
	for _, table := range r.sections {
		if table.Type != elf.SHT_RELA || table.Info <= 0 || table.Info >= len(r.sections) || r.sections[table.Info] != s {
			continue
		}
		relas, err := table.Open()
		if err != nil {
			return nil, err
		}
		t := &relocated{Section: contents, by: r, relas: relas, count: int(relas.Size() / relaSize)}
		err = t.index(table)
		return t, err
	}
	return contents, nil
}

// index records the offsets of relocations. Assemblers and linkers write relocations in the
// order of their targets.
func (t *relocated) index(table *elffile.Section) error {
	buf := make([]byte, relaStride*relaSize)
	last := uint64(0)
	for i := 0; i < t.count; i += relaStride {
		n := min(relaStride, t.count-i)
		if err := t.read(buf[:n*relaSize], i); err != nil {
			return err
		}
		t.starts = append(t.starts, binary.LittleEndian.Uint64(buf))
		for b := buf[:n*relaSize]; len(b) > 0; b = b[relaSize:] {
			offset := binary.LittleEndian.Uint64(b)
			if offset < last {
				return t.by.file.Errorf(int64(table.Offset), "unsorted relocations in %s", table.Name)
			}
			last = offset
		}
	}
	return nil
}

// read reads relocations, starting with the i-th.
func (t *relocated) read(b []byte, i int) error {
	if _, err := t.relas.ReadAt(b, int64(i)*relaSize); err != nil {
		return fmt.Errorf("%s: read relocations: %w", t.by.file.Name(), err)
	}
	return nil
}

// ReadAt implements [io.ReaderAt].
func (t *relocated) ReadAt(b []byte, off int64) (int, error) {
	n, err := t.Section.ReadAt(b, off)
	if n == 0 {
		return n, err
	}
	start, end := uint64(off), uint64(off)+uint64(n)
	// A relocation of earlier bytes may extend into ours.
	const reach = 7
	i := relaStride * max(0, sort.Search(len(t.starts), func(i int) bool { return t.starts[i]+reach >= start })-1)
	buf := make([]byte, relaStride*relaSize)
	for ; i < t.count; i += relaStride {
		relas := buf[:min(relaStride, t.count-i)*relaSize]
		if err := t.read(relas, i); err != nil {
			return 0, err
		}
		for ; len(relas) > 0; relas = relas[relaSize:] {
			offset := binary.LittleEndian.Uint64(relas)
			if offset >= end {
				return n, err
			}
			if offset+reach >= start {
				t.apply(b[:n], start, offset, binary.LittleEndian.Uint64(relas[8:]), binary.LittleEndian.Uint64(relas[16:]))
			}
		}
	}
	return n, err
}

// apply applies a relocation to the part of its target within b, which begins at start.
func (t *relocated) apply(b []byte, start, offset, info, addend uint64) {
	size := relocationSize(t.by.file.Machine(), uint32(info))
	symbol := info >> 32
	if size == 0 || symbol >= uint64(len(t.by.symbols)) {
		return
	}
	var value [8]byte
	binary.LittleEndian.PutUint64(value[:], t.by.symbols[symbol]+addend)
	for i, v := range value[:size] {
		if at := offset + uint64(i) - start; at < uint64(len(b)) {
			b[at] = v
		}
	}
}

// relocationSize returns the number of bytes that a relocation stores, or 0 for a type
// that does not occur in debug sections.
func relocationSize(machine elf.Machine, typ uint32) int {
	switch machine {
	case elf.EM_X86_64:
		switch elf.R_X86_64(typ) {
		case elf.R_X86_64_64:
			return 8
		case elf.R_X86_64_32, elf.R_X86_64_32S:
			return 4
		}
	case elf.EM_AARCH64:
		switch elf.R_AARCH64(typ) {
		case elf.R_AARCH64_ABS64:
			return 8
		case elf.R_AARCH64_ABS32:
			return 4
		}
	}
	return 0
}
