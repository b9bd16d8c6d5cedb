package symbolize

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"path"
	"slices"

	"fulgur/internal/symbols/elffile"
)

// goFile is the name of the only source file in Go's symbol tables, whose names have packages.
const goFile = "go.go"

// variable is a candidate for the variable at an address.
type variable struct {
	table       *symbolTable // nil means no variable
	start, size uint64
	name, file  uint32 // offsets in the table's strings; file is that of a local symbol, 0 if there is none
	binding     elf.SymBind
}

// Variables returns the names of the variables at link-time addresses, "" where the symbol tables have none. A
// variable that only its source file can use has its name with that of the file: "file.c:pool_lock". An address inside
// a variable has an offset: "pool+0x40". As with functions, the innermost variable wins, and then the best known
// of several names.
func (e *ELF) Variables(addrs []uint64) ([]string, error) {
	tables, err := e.symbolTables()
	errs := []error{err}
	order := make([]int, len(addrs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(addrs[a], addrs[b]) })
	found := make([]variable, len(addrs))
	for _, t := range tables {
		var file uint32
		errs = append(errs, t.file.EachSymbol(t.section, func(s elffile.Symbol) bool {
			if s.Type == elf.STT_FILE {
				file = s.Name
			}
			v, ok := t.variable(s)
			if !ok {
				return true
			}
			if s.Binding == elf.STB_LOCAL {
				v.file = file
			}
			first, _ := slices.BinarySearchFunc(order, v.start, func(i int, start uint64) int { return cmp.Compare(addrs[i], start) })
			for _, i := range order[first:] {
				if !v.covers(addrs[i]) {
					break
				}
				if v.better(found[i]) {
					found[i] = v
				}
			}
			return true
		}))
	}
	names := make([]string, len(addrs))
	for i, v := range found {
		if v.table != nil {
			names[i] = v.text(addrs[i], e.opts)
		}
	}
	for _, t := range tables {
		errs = append(errs, t.names.Err())
	}
	return names, errors.Join(errs...)
}

// variable returns a symbol as a variable, or false if it is none. Symbols without a size mark places, such as the
// end of a section.
func (t *symbolTable) variable(s elffile.Symbol) (v variable, ok bool) {
	if s.Type != elf.STT_OBJECT || s.Size == 0 || int(s.Section) >= len(t.sections) {
		return v, false
	}
	in := t.sections[s.Section]
	if in.Flags&elf.SHF_ALLOC == 0 || in.Flags&(elf.SHF_EXECINSTR|elf.SHF_TLS) != 0 || !in.Holds(s.Value) {
		return v, false
	}
	return variable{
		table: t, start: s.Value, size: min(s.Size, in.Size-(s.Value-in.Addr)), name: s.Name, binding: s.Binding,
	}, true
}

// covers reports whether the variable has an address, which must not be below its start.
func (v variable) covers(addr uint64) bool { return addr-v.start < v.size }

// better reports whether v is a better choice than another variable for an address that both cover.
func (v variable) better(than variable) bool {
	known := []elf.SymBind{elf.STB_GLOBAL, elf.STB_WEAK, elf.STB_LOCAL} // the best first
	switch {
	case than.table == nil:
		return true
	case v.start != than.start:
		return v.start > than.start
	case v.size != than.size:
		return v.size < than.size
	}
	return slices.Index(known, v.binding) < slices.Index(known, than.binding)
}

// text returns the name of the variable for an address in it.
func (v variable) text(addr uint64, opts Options) string {
	name := NewFrame(v.table.names.At(uint64(v.name)), 0, opts).Name
	if file := valid(string(v.table.names.At(uint64(v.file)))); v.file != 0 && file != "" && file != goFile {
		name = path.Base(file) + ":" + name
	}
	if addr > v.start {
		return fmt.Sprintf("%s+%#x", name, addr-v.start)
	}
	return name
}
