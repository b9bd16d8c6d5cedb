package symbolize

import (
	"bytes"
	"debug/elf"
	"errors"

	"fulgur/internal/symbols/elffile"
)

// symbolTable is a symbol table while it is read.
type symbolTable struct {
	file     *elffile.File
	section  *elffile.Section
	sections []*elffile.Section // of the file
	names    *elffile.StringTable
	// complete is set for a table that has all functions, so that what
	// follows a symbol without a size up to the next one belongs to it. In
	// .dynsym that would be a guess, since it leaves out what is not
	// exported.
	complete bool
}

// symbol is a function symbol while it competes for an address.
type symbol struct {
	table       *symbolTable // nil for no symbol
	in          *elffile.Section
	start, size uint64
	name        uint32 // offset in the table's names
	binding     elf.SymBind
	resolver    bool // an IFUNC, named after the function that it chooses
}

// covers reports whether the symbol's size reaches addr, which is not below
// its start.
func (s symbol) covers(addr uint64) bool { return addr-s.start < s.size }

// lookupSymbols finds the linker's names for addrs in the file's symbol tables,
// in one pass over each.
//
// A symbol that has a size and covers an address wins, the innermost one if
// they nest. Assembly often leaves the size out; such a symbol reaches to the
// next one, at most to the end of its section, and of the function that it
// stands in.
func (e *ELF) lookupSymbols(addrs []uint64, frames [][]Frame) error {
	tables, err := e.symbolTables()
	p := newSymbolPass(addrs)
	errs := []error{err, p.run(tables)}
	stretched := p.resolve(frames)

	// A label inside a function must not reach beyond its end.
	if len(stretched) > 0 {
		starts := make([]uint64, len(stretched))
		for i, s := range stretched {
			starts[i] = s.start
		}
		around := newSymbolPass(starts)
		errs = append(errs, around.run(tables))
		for i, s := range stretched {
			if c := around.covers[i]; c.table != nil && !c.covers(addrs[s.addr]) {
				frames[s.addr] = nil
			}
		}
	}
	for _, t := range tables {
		errs = append(errs, t.names.Err())
	}
	return errors.Join(errs...)
}

// symbolTables returns the tables that name the file's functions: the first
// that has all of them, and .dynsym, which is all that some files have and
// which .gnu_debugdata does not repeat.
func (e *ELF) symbolTables() ([]*symbolTable, error) {
	all := openTable(e.file, elf.SHT_SYMTAB)
	var err error
	if all == nil {
		var d *debugInfo
		if d, err = e.debugInfo(); d.file != nil {
			all = openTable(d.file.File, elf.SHT_SYMTAB)
		}
	}
	if all == nil {
		embedded, embeddedErr := e.file.Embedded()
		if embedded != nil {
			all = openTable(embedded, elf.SHT_SYMTAB)
		}
		err = errors.Join(err, embeddedErr)
	}
	var tables []*symbolTable
	if all != nil {
		all.complete = true
		tables = append(tables, all)
	}
	if exported := openTable(e.file, elf.SHT_DYNSYM); exported != nil {
		tables = append(tables, exported)
	}
	return tables, err
}

// openTable returns f's symbol table of the given type, of which the gABI
// allows one, or nil if it has none.
func openTable(f *elffile.File, typ elf.SectionType) *symbolTable {
	sections, err := f.Sections()
	if err != nil {
		return nil
	}
	for _, s := range sections {
		if s.Type != typ || s.Size == 0 {
			continue
		}
		if names := f.SymbolNames(s); names != nil {
			return &symbolTable{file: f, section: s, sections: sections, names: names}
		}
	}
	return nil
}

// symbolPass is one pass over symbol tables.
type symbolPass struct {
	gaps gaps
	// covers holds for each address the best symbol whose size covers it.
	covers []symbol
	// nearest holds for each address the last symbol that starts at or
	// below it, but above the address before: a symbol is noted in one
	// place, however many addresses follow it.
	nearest []symbol
}

func newSymbolPass(addrs []uint64) *symbolPass {
	return &symbolPass{
		gaps:    gaps{addrs: addrs},
		covers:  make([]symbol, len(addrs)),
		nearest: make([]symbol, len(addrs)),
	}
}

// run reads the tables.
func (p *symbolPass) run(tables []*symbolTable) error {
	var errs []error
	for _, t := range tables {
		errs = append(errs, t.file.EachSymbol(t.section, func(s elffile.Symbol) bool {
			p.add(t, s)
			return true
		}))
	}
	return errors.Join(errs...)
}

// add enters one symbol table entry into the competition.
func (p *symbolPass) add(t *symbolTable, s elffile.Symbol) {
	if s.Type != elf.STT_FUNC && s.Type != elf.STT_GNU_IFUNC && s.Type != elf.STT_NOTYPE {
		return
	}
	if int(s.Section) >= len(t.sections) {
		return // absolute or common
	}
	if t.file.Machine() == elf.EM_ARM {
		s.Value &^= 1 // marks Thumb code
	}
	in := t.sections[s.Section]
	if in.Flags&elf.SHF_EXECINSTR == 0 || !in.Holds(s.Value) {
		return // undefined, data, or the mark of a section's end
	}
	sym := symbol{table: t, in: in, start: s.Value, name: s.Name, binding: s.Binding, resolver: s.Type == elf.STT_GNU_IFUNC}
	sym.size = min(s.Size, in.Size-(s.Value-in.Addr))

	first := p.gaps.after(sym.start)
	if first == len(p.gaps.addrs) {
		return
	}
	if s.Type == elf.STT_NOTYPE && s.Binding == elf.STB_LOCAL &&
		(s.Visibility == elf.STV_HIDDEN || isLabel(t.names.At(uint64(s.Name)))) {
		return
	}
	p.offer(&p.nearest[first], sym)
	for i := first; i < len(p.gaps.addrs) && sym.covers(p.gaps.addrs[i]); i++ {
		p.offer(&p.covers[i], sym)
	}
}

// isLabel reports whether a local symbol without a type is no function: a
// mapping symbol of ARM or RISC-V ("$x", "$d.1"), or a label that a compiler or
// assembler made, as BFD knows them. (Hidden ones are the marks that GCC's
// annobin plugin leaves.)
func isLabel(name []byte) bool {
	for _, prefix := range []string{"$", ".L", "..", "_.L_"} {
		if bytes.HasPrefix(name, []byte(prefix)) {
			return true
		}
	}
	// The assembler's own: "L0\x01", "L12\x02" and a number.
	return len(name) == 0 || name[0] == 'L' && bytes.ContainsAny(name, "\x01\x02")
}

// offer puts sym into place if it is better than what is there: the innermost
// one, then one with a size. Of aliases it takes the one that readers know: a
// global one over a weak one, a weak one over a local one, one that stubs are
// named after, then the better name. perf prefers a local one to a weak one;
// but in C libraries those are the internal names of what programs call by the
// weak ones.
func (p *symbolPass) offer(place *symbol, sym symbol) {
	var better bool
	switch old := *place; {
	case old.table == nil:
		better = true
	case sym.start != old.start:
		better = sym.start > old.start
	case (sym.size == 0) != (old.size == 0):
		better = sym.size != 0
	case sym.table.complete != old.table.complete:
		better = sym.table.complete
	case sym.binding != old.binding:
		better = rank(sym.binding) < rank(old.binding)
	case sym.resolver != old.resolver:
		better = sym.resolver
	default:
		name := bytes.Clone(sym.systemName()) // the next read overwrites it
		better = preferName(name, old.systemName())
	}
	if better {
		*place = sym
	}
}

// rank orders bindings from the best to the worst.
func rank(b elf.SymBind) int {
	switch b {
	case elf.STB_WEAK:
		return 1
	case elf.STB_LOCAL:
		return 2
	}
	return 0 // global, or unique, which is global to all namespaces
}

// systemName returns the symbol's name, valid until another is read from the
// same table.
func (s symbol) systemName() []byte {
	return cutVersion(s.table.names.At(uint64(s.name)))
}

// cutVersion cuts the version off a name: .symtab has "memcpy@@GLIBC_2.14" for
// what .dynsym names "memcpy".
func cutVersion(name []byte) []byte {
	if i := bytes.IndexByte(name, '@'); i > 0 && !bytes.EqualFold(name[i:], []byte(pltSuffix)) {
		return name[:i]
	}
	return name
}

// stretched is an address that was named by a symbol without a size.
type stretched struct {
	addr  int // its index
	start uint64
}

// resolve names the addresses that a symbol was found for, and returns those
// that a symbol without a size was taken for, by ascending start.
func (p *symbolPass) resolve(frames [][]Frame) []stretched {
	var unsized []stretched
	var below symbol // the last symbol at or below the address
	for i, addr := range p.gaps.addrs {
		if p.nearest[i].table != nil {
			below = p.nearest[i]
		}
		sym := p.covers[i]
		if sym.table == nil {
			if below.table == nil || !below.table.complete || below.size != 0 || !below.in.Holds(addr) {
				continue
			}
			sym = below
			unsized = append(unsized, stretched{i, sym.start})
		}
		if name := sym.systemName(); len(name) > 0 {
			frames[i] = []Frame{{SystemName: string(name), Offset: addr - sym.start}}
		}
	}
	return unsized
}
