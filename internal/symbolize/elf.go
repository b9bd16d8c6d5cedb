package symbolize

import (
	"debug/elf"
	"errors"
	"io"

	"fulgur/internal/elffile"
)

// ELF names the code of an ELF file: an executable, a shared library, a vdso.
// It implements [Table] on link-time virtual addresses, see [ELF.Address]. The
// files that it reads from must stay open for as long as names are asked for.
type ELF struct {
	file  *elffile.File
	debug *elffile.File // nil if there is none
	opts  Options
}

// NewELF returns the names of file's code.
func NewELF(file *elffile.File, opts Options) *ELF { return &ELF{file: file, opts: opts} }

// OpenELF reads the headers of the ELF file r, which is size bytes long; name
// is used in errors. Symbols are read when they are first asked for.
func OpenELF(r io.ReaderAt, size int64, name string, opts Options) (*ELF, error) {
	file, err := elffile.New(r, size, name)
	if err != nil {
		return nil, err
	}
	return NewELF(file, opts), nil
}

// SetDebugFile makes the symbols of debug, the separate debug file that belongs
// to this one, part of the table. It must not be called while names are asked
// for.
func (e *ELF) SetDebugFile(debug *elffile.File) { e.debug = debug }

// File returns the file whose code is named.
func (e *ELF) File() *elffile.File { return e.file }

// BuildID returns the GNU build ID in lower-case hex, or "" if the file has
// none.
func (e *ELF) BuildID() string { return e.file.BuildID() }

// Address returns the link-time virtual address of the byte at fileOffset, as
// the executable segments place it. It reports false for an offset that no
// executable segment holds.
func (e *ELF) Address(fileOffset uint64) (vaddr uint64, ok bool) {
	return e.file.Address(fileOffset)
}

// HasSymbols reports whether the file or its debug file holds a table that can
// be expected to name all of its functions: .symtab, .gnu_debugdata or Go's
// pclntab, but not .dynsym, which names only what is exported.
func (e *ELF) HasSymbols() bool {
	for _, f := range []*elffile.File{e.file, e.debug} {
		if f == nil {
			continue
		}
		if openTable(f, elf.SHT_SYMTAB) != nil || f.Section(".gnu_debugdata") != nil || goTableSection(f) != nil {
			return true
		}
	}
	return false
}

// LookupBatch implements [Table] on link-time virtual addresses. Go's own
// table is asked first, since it is exact, then the procedure linkage table,
// then all symbol tables together.
func (e *ELF) LookupBatch(addrs []uint64) ([][]Frame, error) {
	frames := make([][]Frame, len(addrs))
	if _, err := e.file.Sections(); err != nil {
		return frames, err
	}
	var errs []error
	for _, lookup := range []func([]uint64, [][]Frame) error{e.lookupGo, e.lookupPLT, e.lookupSymbols} {
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
