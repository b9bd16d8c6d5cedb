package elffile

import (
	"debug/elf"
	"errors"
	"slices"
)

// Tables are files whose symbol tables together describe a program: the program's own and, for
// example, that of its debug file. All have the same addresses.
type Tables []*File

// Each calls yield with every symbol of all symbol tables, and with a function that returns its
// name, which is valid until the next call, until yield returns false.
func (t Tables) Each(yield func(s Symbol, name func() []byte) bool) error {
	for more, rest := true, t; more && len(rest) > 0; rest = rest[1:] {
		sections, err := rest[0].Sections()
		if err != nil {
			return err
		}
		for _, section := range sections {
			names := rest[0].SymbolNames(section)
			if section.Type != elf.SHT_SYMTAB && section.Type != elf.SHT_DYNSYM || names == nil || !more {
				continue
			}
			var current Symbol
			name := func() []byte { return names.At(uint64(current.Name)) }
			err := rest[0].EachSymbol(section, func(s Symbol) bool {
				current = s
				more = yield(s, name)
				return more
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// HasStatic reports whether a file has a .symtab with symbols.
func (f *File) HasStatic() bool {
	sections, err := f.Sections()
	return err == nil && slices.ContainsFunc(sections, func(s *Section) bool {
		return s.Type == elf.SHT_SYMTAB && s.Size > 0 && f.SymbolNames(s) != nil
	})
}

// Close closes the files.
func (t Tables) Close() error {
	var errs []error
	for _, f := range t {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
