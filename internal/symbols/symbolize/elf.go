package symbolize

import (
	"context"
	"debug/elf"
	"errors"
	"io"
	"sync"

	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/elffile"
)

// ELF names the code of an ELF file: an executable, a shared library, a vdso.
// It implements [Table] on link-time virtual addresses, see [ELF.Address]. The
// files that it reads from must stay open for as long as names are asked for.
type ELF struct {
	file *elffile.File
	opts Options
	// debugInfo returns what describes the file, reading it the first time.
	// It is never nil, and knows nothing if there is nothing.
	debugInfo func() (*debugInfo, error)
	opened    *debugInfo // nil if debugInfo was not called
}

// NewELF returns the names of file's code, as file alone tells them.
func NewELF(file *elffile.File, opts Options) *ELF {
	e := &ELF{file: file, opts: opts}
	e.openDebugInfo(context.Background(), nil, &debugfile.File{File: file})
	return e
}

// OpenELF reads the headers of the ELF file r, which is size bytes long; name
// is used in errors. Symbols are read when they are first asked for.
func OpenELF(r io.ReaderAt, size int64, name string, opts Options) (*ELF, error) {
	file, err := elffile.New(r, size, name)
	if err != nil {
		return nil, err
	}
	return NewELF(file, opts), nil
}

// Search makes what finder finds for the file part of the table: separate debug
// files, those that dwz made, split DWARF. It is looked for when the first
// address needs it; the end of ctx ends downloads, and reading debug information.
// The directory root stands for "/" where the file is, path is its path there;
// see [debugfile.File].
//
// It must be called before names are asked for.
func (e *ELF) Search(ctx context.Context, finder *debugfile.Finder, root, path string) {
	e.openDebugInfo(ctx, finder, &debugfile.File{File: e.file, Root: root, Path: path})
}

func (e *ELF) openDebugInfo(ctx context.Context, finder *debugfile.Finder, binary *debugfile.File) {
	e.debugInfo = sync.OnceValues(func() (*debugInfo, error) {
		var err error
		e.opened, err = openDebugInfo(ctx, finder, binary, e.opts)
		return e.opened, err
	})
}

// Close closes what belongs to the file and gives back temporary files; the
// reader that the file was opened with stays as it is.
func (e *ELF) Close() error {
	err := e.file.Close()
	if e.opened != nil {
		err = errors.Join(e.opened.close(), err)
	}
	return err
}

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

// HasSymbols reports whether there is a table that can be expected to name all
// functions: .symtab, .gnu_debugdata or DWARF, in the file or in one that
// belongs to it, or Go's pclntab, but not .dynsym, which names only what is
// exported.
func (e *ELF) HasSymbols() bool {
	if hasSymbols(e.file) || goTableSection(e.file) != nil {
		return true
	}
	d, _ := e.debugInfo() // what it has counts
	return d.file != nil || d.data != nil
}

// SearchProblems returns why debug files were not used that might belong to the
// file, and which servers failed.
func (e *ELF) SearchProblems() []error {
	d, _ := e.debugInfo() // its error was returned with names
	return d.problems
}

// hasSymbols reports whether f itself has all symbols.
func hasSymbols(f *elffile.File) bool {
	return openTable(f, elf.SHT_SYMTAB) != nil || f.Section(".gnu_debugdata") != nil
}

// LookupBatch implements [Table] on link-time virtual addresses. Go's own
// table is asked first, since it is exact, then the procedure linkage table,
// then all symbol tables together with the debug information.
func (e *ELF) LookupBatch(addrs []uint64) ([][]Frame, error) {
	frames := make([][]Frame, len(addrs))
	if _, err := e.file.Sections(); err != nil {
		return frames, err
	}
	var errs []error
	for _, lookup := range []func([]uint64, [][]Frame) error{e.lookupGo, e.lookupPLT, e.lookupFunctions} {
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

// lookupFunctions names addrs from the symbol tables, and describes them from
// the debug information.
func (e *ELF) lookupFunctions(addrs []uint64, frames [][]Frame) error {
	err := e.lookupSymbols(addrs, frames)
	d, debugErr := e.debugInfo()
	err = errors.Join(err, debugErr, d.describe(addrs, frames))
	nameFrames(frames, e.opts)
	return err
}
