package elffile

import (
	"debug/elf"
	"errors"
	"slices"
)

const (
	// tableChunk is the number of table entries to read at once.
	tableChunk = 2048
	// maxTable bounds a table, in bytes: 40 million symbols. A larger table was crafted to
	// waste time, since holes in a file cost nothing.
	maxTable = 1 << 30
)

// Symbol is an entry of a symbol table.
type Symbol struct {
	// Name is the offset of the name in the table's [StringTable].
	Name    uint32
	Binding elf.SymBind
	Type    elf.SymType
	// Visibility is the visibility of a symbol that is not local.
	Visibility elf.SymVis
	// Section is the index of the symbol's section, or a special value such as
	// [elf.SHN_UNDEF].
	Section elf.SectionIndex
	// Value is a link-time virtual address, and Size the number of bytes there.
	Value, Size uint64
}

// EachSymbol calls yield with every entry of the symbol table s (SHT_SYMTAB or
// SHT_DYNSYM) in order, until yield returns false. It streams the table.
func (f *File) EachSymbol(s *Section, yield func(Symbol) bool) error {
	return f.eachEntry(s, f.pick(elf.Sym32Size, elf.Sym64Size), "symbol table", func(b []byte) bool {
		return yield(f.symbol(b))
	})
}

// SymbolNames returns the names of the symbol table s, or nil if it has none.
func (f *File) SymbolNames(s *Section) *StringTable {
	if s.Link <= 0 || s.Link >= len(f.sections.sections) {
		return nil
	}
	return f.stringsAt(f.sections.sections[s.Link])
}

// SymbolValues returns the values of the defined symbols with these names in .symtab. The
// result omits names that .symtab lacks.
func (f *File) SymbolValues(names ...string) (map[string]uint64, error) {
	symbols, err := f.StaticSymbols(names...)
	values := map[string]uint64{}
	for name, s := range symbols {
		values[name] = s.Value
	}
	return values, err
}

// StaticSymbols returns the defined symbols with these names in .symtab. The result omits names
// that .symtab lacks.
func (f *File) StaticSymbols(names ...string) (map[string]Symbol, error) {
	sections, err := f.Sections()
	if err != nil {
		return nil, err
	}
	found := map[string]Symbol{}
	for _, table := range sections {
		if table.Type != elf.SHT_SYMTAB {
			continue
		}
		text := f.SymbolNames(table)
		if text == nil {
			continue
		}
		err := f.EachSymbol(table, func(s Symbol) bool {
			if s.Section == elf.SHN_UNDEF {
				return true
			}
			if name := text.At(uint64(s.Name)); slices.Contains(names, string(name)) {
				found[string(name)] = s
			}
			return len(found) < len(names)
		})
		if err := errors.Join(err, text.Err()); err != nil {
			return found, err
		}
	}
	return found, nil
}

// symbol decodes a symbol table entry.
func (f *File) symbol(b []byte) Symbol {
	h := fields{b, f.is64}
	info := h.byte(12, 4)
	return Symbol{
		Name:       h.uint32(0, 0),
		Binding:    elf.ST_BIND(info),
		Type:       elf.ST_TYPE(info),
		Visibility: elf.ST_VISIBILITY(h.byte(13, 5)),
		Section:    elf.SectionIndex(h.half(14, 6)),
		Value:      h.word(4, 8),
		Size:       h.word(8, 16),
	}
}

// symbolAt returns the i-th entry of the symbol table s.
func (f *File) symbolAt(s *Section, i uint64) (Symbol, error) {
	entsize := uint64(f.pick(elf.Sym32Size, elf.Sym64Size))
	if i >= s.Size/entsize {
		return Symbol{}, s.errorf("symbol %d lies outside of its table", i)
	}
	b, err := f.Bytes(int64(s.Offset+i*entsize), entsize, "symbol")
	if err != nil {
		return Symbol{}, err
	}
	return f.symbol(b), nil
}

// Rela is a relocation with an addend in a 64-bit file.
type Rela struct {
	Offset uint64 // link-time virtual address to relocate
	Type   uint32 // specific to the machine
	Symbol uint32 // index in the linked symbol table
	Addend int64
}

// EachRela calls yield with every relocation that the loader applies to a 64-bit file,
// and the table (SHT_RELA) that contains it, in order, until yield returns false. It
// skips relocations that the linker kept for tools (--emit-relocs). It streams the
// tables. Overlapping tables whose total size exceeds the file's are an error, because
// reading them could take forever.
func (f *File) EachRela(yield func(*Section, Rela) bool) error {
	const entsize = 24
	sections, err := f.Sections()
	if err != nil {
		return err
	}
	left := uint64(f.size)
	for more := true; more && len(sections) > 0; sections = sections[1:] {
		s := sections[0]
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		if s.Size > left {
			return s.errorf("relocation tables overlap")
		}
		left -= s.Size
		err := f.eachEntry(s, entsize, "relocations", func(b []byte) bool {
			h := fields{b, true}
			info := h.word(0, 8)
			more = yield(s, Rela{h.word(0, 0), elf.R_TYPE64(info), elf.R_SYM64(info), int64(h.word(0, 16))})
			return more
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachEntry calls yield with every complete entry of the table s in order, until yield
// returns false. It fails if the table is larger than maxTable.
func (f *File) eachEntry(s *Section, entsize int, what string, yield func([]byte) bool) error {
	if s.Type == elf.SHT_NOBITS {
		return nil
	}
	if err := f.check(int64(s.Offset), s.Size, what); err != nil {
		return err
	}
	if s.Size > maxTable {
		return s.errorf("%d bytes of %s are more than any program has", s.Size, what)
	}
	off, left := int64(s.Offset), int(s.Size)/entsize
	buf := make([]byte, min(tableChunk, left)*entsize)
	for left > 0 {
		buf = buf[:min(len(buf), left*entsize)]
		if err := f.ReadFull(buf, off, what); err != nil {
			return err
		}
		for b := buf; len(b) > 0; b = b[entsize:] {
			if !yield(b[:entsize]) {
				return nil
			}
		}
		off += int64(len(buf))
		left -= len(buf) / entsize
	}
	return nil
}
