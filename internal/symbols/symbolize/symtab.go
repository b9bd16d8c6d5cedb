package symbolize

import (
	"bytes"
	"debug/elf"
	"errors"

	"fulgur/internal/symbols/elffile"
)

// symbolTable is a symbol table that is being read.
type symbolTable struct {
	file     *elffile.File
	section  *elffile.Section
	sections []*elffile.Section // sections of the file
	names    *elffile.StringTable
	// complete is set for a table with all functions. Then the code after a symbol without a
	// size belongs to it, up to the next symbol. In .dynsym this would be a guess, since
	// functions that are not exported are missing.
	complete bool
}

// symbol is a candidate for the function at an address.
type symbol struct {
	table       *symbolTable // nil means no symbol
	in          *elffile.Section
	start, size uint64
	name        uint32 // offset in the table's strings
	binding     elf.SymBind
	resolver    bool // an IFUNC, with the name of the function that it chooses
}

// covers reports whether the symbol's size covers addr, which must not be below its start.
func (s symbol) covers(addr uint64) bool { return addr-s.start < s.size }

// lookupSymbols finds the linker names for addrs in the file's symbol tables, in one pass
// over each.
//
// The innermost symbol whose size covers an address wins. Symbols from assembly often
// have no size. Such a symbol extends to the next one, but not beyond the end of its
// section or of an enclosing function.
func (e *ELF) lookupSymbols(addrs []uint64, frames [][]Frame) error {
	tables, err := e.symbolTables()
	p := newSymbolPass(addrs)
	errs := []error{err, p.run(tables)}
	stretched := p.resolve(frames)

	// A label in a function must not extend beyond the function's end.
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

// symbolTables returns the tables with the file's functions: the first complete one, and
// .dynsym. Some files have only .dynsym, and .gnu_debugdata does not repeat its symbols.
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

// openTable returns f's symbol table of the given type, or nil if it has none. The gABI
// allows only one.
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

// symbolPass is a pass over symbol tables.
type symbolPass struct {
	gaps gaps
	// covers holds for each address the best symbol whose size covers it.
	covers []symbol
	// nearest holds for each address the last symbol that starts at or below it but above the
	// previous address. So a symbol is stored only once, no matter how many addresses follow
	// it.
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

// add considers a symbol table entry.
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
		return // undefined, data, or a section's end marker
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

// isLabel reports whether a local symbol without a type is not a function: a mapping
// symbol of ARM or RISC-V ("$x", "$d.1"), or a label made by a compiler or assembler, by
// the rules of BFD. (Hidden ones are markers of GCC's annobin plugin.)
func isLabel(name []byte) bool {
	for _, prefix := range []string{"$", ".L", "..", "_.L_"} {
		if bytes.HasPrefix(name, []byte(prefix)) {
			return true
		}
	}
	// Labels of the assembler: "L0\x01", "L12\x02" plus a number.
	return len(name) == 0 || name[0] == 'L' && bytes.ContainsAny(name, "\x01\x02")
}

// offer stores sym in place if it is better than the present one: an inner symbol beats an
// outer one, then one with a size beats one without. Among aliases the best known wins:
// global before weak before local, then a resolver, after which stubs are named, then the
// better name. perf prefers local to weak symbols, but in C libraries local aliases are
// internal names of functions that programs call by their weak names.
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

// rank orders bindings from best to worst.
func rank(b elf.SymBind) int {
	switch b {
	case elf.STB_WEAK:
		return 1
	case elf.STB_LOCAL:
		return 2
	}
	return 0 // global, or unique, which is global to all namespaces
}

// systemName returns the symbol's name. It is valid until the next name is read from the
// table.
func (s symbol) systemName() []byte {
	return cutVersion(s.table.names.At(uint64(s.name)))
}

// cutVersion removes the version from a name: "memcpy@@GLIBC_2.14" in .symtab is "memcpy"
// in .dynsym.
func cutVersion(name []byte) []byte {
	if i := bytes.IndexByte(name, '@'); i > 0 && !bytes.EqualFold(name[i:], []byte(pltSuffix)) {
		return name[:i]
	}
	return name
}

// stretched is an address found in a symbol without a size.
type stretched struct {
	addr  int // index of the address
	start uint64
}

// resolve sets the names of the addresses with a symbol. It returns those whose symbol
// has no size, by ascending start.
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
