package symbolize

import (
	"context"
	"debug/elf"
	"errors"
	"io"
	"sync"

	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/dwarf"
	"fulgur/internal/symbols/elffile"
)

// ELF symbolizes the code of an ELF file: an executable, a shared library or a vDSO. It
// implements [Table] for link-time virtual addresses, see [ELF.Address]. The file's reader
// must stay open while the ELF is in use.
type ELF struct {
	file *elffile.File
	opts Options
	ctx  context.Context // stops lookups, see [ELF.Search]
	// debugInfo returns the debug information of the file, reading it on the first call.
	// It is never nil, but may be empty.
	debugInfo func() (*debugInfo, error)
	opened    *debugInfo         // nil before the first call of debugInfo
	plt       []elffile.PLTEntry // nil if not kept; see pltEntries
}

// NewELF returns a table of file's code that uses only file itself.
func NewELF(file *elffile.File, opts Options) *ELF {
	e := &ELF{file: file, opts: opts}
	e.openDebugInfo(context.Background(), nil, &debugfile.File{File: file})
	return e
}

// OpenELF reads the headers of the ELF file r, which is size bytes long. name is used in
// errors. Symbols are read on first use.
func OpenELF(r io.ReaderAt, size int64, name string, opts Options) (*ELF, error) {
	file, err := elffile.New(r, size, name)
	if err != nil {
		return nil, err
	}
	return NewELF(file, opts), nil
}

// Search adds the files that finder finds for this one: separate debug files, files made by
// dwz, and split DWARF. The search starts when an address first needs it. When ctx is done,
// downloads, reading of debug information and demangling stop. root is the directory that serves
// as "/" for the file, and path is its path there; see [debugfile.File].
//
// Search must be called before the first lookup.
func (e *ELF) Search(ctx context.Context, finder *debugfile.Finder, root, path string) {
	e.openDebugInfo(ctx, finder, &debugfile.File{File: e.file, Root: root, Path: path})
}

func (e *ELF) openDebugInfo(ctx context.Context, finder *debugfile.Finder, binary *debugfile.File) {
	e.ctx = ctx
	e.debugInfo = sync.OnceValues(func() (*debugInfo, error) {
		var err error
		e.opened, err = openDebugInfo(ctx, finder, binary, e.opts)
		return e.opened, err
	})
}

// Close closes the files found for this one and releases temporary files. It does not
// close the reader of the file itself.
func (e *ELF) Close() error {
	err := e.file.Close()
	if e.opened != nil {
		err = errors.Join(e.opened.close(), err)
	}
	return err
}

// File returns the file.
func (e *ELF) File() *elffile.File { return e.file }

// BuildID returns the GNU build ID in lowercase hex, or "" if the file has none.
func (e *ELF) BuildID() string { return e.file.BuildID() }

// Address returns the link-time virtual address of the byte at fileOffset, according to
// the executable segments. ok is false if no executable segment contains the offset.
func (e *ELF) Address(fileOffset uint64) (vaddr uint64, ok bool) {
	return e.file.Address(fileOffset)
}

// Debug returns the debug information of the file, or of the debug file found for it. It
// is nil if there is none, and may be usable despite an error.
func (e *ELF) Debug() (*dwarf.Data, error) {
	d, err := e.debugInfo()
	return d.data, err
}

// SplitProblems returns an error about the split debug files that lookups needed but could
// not read, or nil.
func (e *ELF) SplitProblems() error {
	d, _ := e.debugInfo() // lookups return its error
	return d.splitProblems()
}

// HasSymbol reports whether the symbol tables of the file, or of its debug file, have a
// symbol with this name.
func (e *ELF) HasSymbol(name string) (bool, error) {
	found := false
	err := e.eachSymbol(func(_ elffile.Symbol, read func() []byte) bool {
		found = string(read()) == name
		return !found
	})
	return found, err
}

// SymbolsAt returns the names of all symbols that begin at the given addresses.
func (e *ELF) SymbolsAt(addrs []uint64) (map[uint64][]string, error) {
	names := map[uint64][]string{}
	for _, a := range addrs {
		names[a] = nil
	}
	err := e.eachSymbol(func(s elffile.Symbol, read func() []byte) bool {
		if list, wanted := names[s.Value]; wanted && s.Section != elf.SHN_UNDEF {
			names[s.Value] = append(list, string(read()))
		}
		return true
	})
	return names, err
}

// eachSymbol calls yield for every symbol until it returns false. read returns its name.
func (e *ELF) eachSymbol(yield func(s elffile.Symbol, read func() []byte) bool) error {
	tables, err := e.symbolTables()
	more := true
	for _, t := range tables {
		if !more {
			break
		}
		err = errors.Join(err, t.file.EachSymbol(t.section, func(s elffile.Symbol) bool {
			more = yield(s, func() []byte { return t.names.At(uint64(s.Name)) })
			return more
		}), t.names.Err())
	}
	return err
}

// HasSymbols reports whether there is a table that should have all functions: .symtab,
// .gnu_debugdata or DWARF, in the file or in its debug file, or Go's pclntab. .dynsym does
// not count, because it has only exported functions.
func (e *ELF) HasSymbols() bool {
	if hasSymbols(e.file) || goTableSection(e.file) != nil {
		return true
	}
	d, _ := e.debugInfo() // the result is usable despite an error
	return d.file != nil || d.data != nil
}

// SearchProblems returns the reasons why candidate debug files were rejected, and the
// errors of servers.
func (e *ELF) SearchProblems() []error {
	d, _ := e.debugInfo() // lookups return its error
	return d.problems
}

// hasSymbols reports whether f itself has all symbols.
func hasSymbols(f *elffile.File) bool {
	return openTable(f, elf.SHT_SYMTAB) != nil || f.Section(".gnu_debugdata") != nil
}

// LookupBatch implements [Table] for link-time virtual addresses. It uses Go's own table
// first, since it is exact, then the procedure linkage table, then all symbol tables together
// with the debug information. A function that none of them has is named after its start
// address, if the call frame information provides that; see [Frame.NoSymbol].
func (e *ELF) LookupBatch(addrs []uint64) ([][]Frame, error) {
	frames := make([][]Frame, len(addrs))
	if _, err := e.file.Sections(); err != nil {
		return frames, err
	}
	var errs []error
	for _, lookup := range []func([]uint64, [][]Frame) error{e.lookupGo, e.lookupPLT, e.lookupFunctions, e.lookupBounds} {
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

// lookupFunctions finds the functions at addrs in the symbol tables, and adds debug
// information.
func (e *ELF) lookupFunctions(addrs []uint64, frames [][]Frame) error {
	err := e.lookupSymbols(addrs, frames)
	d, debugErr := e.debugInfo()
	err = errors.Join(err, debugErr, d.describe(addrs, frames))
	nameFrames(e.ctx, frames, e.opts)
	return err
}
