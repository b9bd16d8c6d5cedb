package bolt

import (
	"cmp"
	"debug/elf"
	"slices"

	"fulgur/internal/symbols/elffile"
)

// Functions holds the address ranges that BOLT considers functions: symbols of the symbol
// table, and each slot of the procedure linkage table.
type Functions struct{ ranges []span }

// span is a range of link-time addresses, the end excluded.
type span struct{ start, end uint64 }

// maxFunctions bounds the functions of a file, so that a crafted symbol table cannot
// exhaust memory.
const maxFunctions = 16 << 20

// pltSlot is the size of a stub in the procedure linkage table, in bytes, as BOLT assumes.
const pltSlot = 16

// NewFunctions reads the functions of f from .symtab or, if it is stripped, from .dynsym. f
// may be closed afterwards.
func NewFunctions(f *elffile.File) (*Functions, error) {
	sections, err := f.Sections()
	if err != nil {
		return nil, err
	}
	fs := &Functions{}
	if symbols := symbolTable(sections); symbols != nil {
		err := f.EachSymbol(symbols, func(s elffile.Symbol) bool {
			if (s.Type == elf.STT_FUNC || s.Type == elf.STT_GNU_IFUNC) && s.Section != elf.SHN_UNDEF {
				fs.ranges = append(fs.ranges, span{s.Value, s.Value + s.Size})
			}
			return len(fs.ranges) < maxFunctions
		})
		if err != nil {
			return nil, err
		}
	}
	for _, s := range sections {
		if !s.IsPLT() {
			continue
		}
		for at := uint64(0); at < min(s.Size, uint64(f.Size())) && len(fs.ranges) < maxFunctions; at += pltSlot {
			fs.ranges = append(fs.ranges, span{s.Addr + at, s.Addr + at + pltSlot})
		}
	}
	fs.arrange(sections)
	return fs, nil
}

// symbolTable returns the symbol table that contains the functions, or nil.
func symbolTable(sections []*elffile.Section) *elffile.Section {
	var dynamic *elffile.Section
	for _, s := range sections {
		switch s.Type {
		case elf.SHT_SYMTAB:
			return s
		case elf.SHT_DYNSYM:
			dynamic = s
		}
	}
	return dynamic
}

// arrange sorts the ranges and keeps one for each address. Like BOLT, it extends ranges
// without a size, which come from hand-written assembly, to the next function or the end of
// the section.
func (fs *Functions) arrange(sections []*elffile.Section) {
	slices.SortFunc(fs.ranges, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	fs.ranges = slices.CompactFunc(fs.ranges, func(a, b span) bool { return a.start == b.start })
	var code []span
	for _, s := range sections {
		if s.Flags&elf.SHF_EXECINSTR != 0 {
			code = append(code, span{s.Addr, s.Addr + s.Size})
		}
	}
	slices.SortFunc(code, func(a, b span) int { return cmp.Compare(a.end, b.end) })
	for i := range fs.ranges {
		r := &fs.ranges[i]
		for len(code) > 0 && code[0].end <= r.start {
			code = code[1:]
		}
		if r.end > r.start {
			continue
		}
		r.end = r.start
		if len(code) > 0 && code[0].start <= r.start {
			r.end = code[0].end
		}
		if i+1 < len(fs.ranges) {
			r.end = min(r.end, fs.ranges[i+1].start)
		}
	}
}

// Same reports whether the link-time addresses a and b are in the same function.
func (fs *Functions) Same(a, b uint64) bool {
	i := fs.find(a)
	return i >= 0 && i == fs.find(b)
}

// find returns the index of the function that contains addr, or -1.
func (fs *Functions) find(addr uint64) int {
	i, found := slices.BinarySearchFunc(fs.ranges, addr, func(r span, addr uint64) int {
		return cmp.Compare(r.start, addr)
	})
	if !found {
		i--
	}
	if i < 0 || addr >= fs.ranges[i].end {
		return -1
	}
	return i
}
