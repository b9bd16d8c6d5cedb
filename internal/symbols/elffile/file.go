// Package elffile reads ELF files as they come from strangers: everything a
// header asks for is checked against the file before it is read or allocated,
// and what a file claims in error is reported as a [FormatError] that names
// the file and the offset.
//
// The format is that of the System V gABI with the extensions of GNU and LLVM
// for notes, debug links and compressed sections. Both classes are read,
// little-endian only, since no other code runs on the machines that fulgur
// supports. Relocatable files (ET_REL) can be opened, but nothing in them is
// relocated.
package elffile

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limits on what the headers of a file may ask for. Real files stay far
// below.
const (
	maxSegments    = 1 << 12
	maxSections    = 1 << 16
	maxSectionName = 256
)

// File is an ELF file: an executable, a shared library, a separate debug file,
// a vdso. It keeps the segments and, once asked for one, the section headers;
// contents are read when asked for, so that its reader must stay open for as
// long as the File is used. Its methods may be called from several goroutines.
type File struct {
	r    io.ReaderAt
	size int64
	// stored is how many bytes of the file are on disk.
	stored int64
	name   string
	owned  io.Closer // closed with the File, nil if it is another's

	is64     bool
	typ      elf.Type
	machine  elf.Machine
	entry    uint64
	segments []Segment
	sections sectionTable

	buildID  func() string
	embedded func() (*File, error)

	limit  uint64  // of a decompressed section, in bytes
	budget *budget // of all temporary files

	mu        sync.Mutex
	ctx       context.Context
	temporary []io.Closer // what holds decompressed sections
	closed    bool
}

// FormatError reports bytes that a file's format does not allow.
type FormatError struct {
	// File is the name of the file as given by the caller.
	File string
	// Offset is where in the file the faulty structure begins, in bytes.
	Offset int64
	// Problem says what is wrong there.
	Problem string
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: %s at offset %#x", e.File, e.Problem, e.Offset)
}

// Open opens the ELF file at path. [File.Close] closes it.
func Open(path string) (*File, error) {
	// Opening a pipe must not wait for its writer.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return FromFile(file)
}

// Opened is an open file, such as an [os.File].
type Opened interface {
	io.ReaderAt
	io.Closer
	Name() string
	Stat() (os.FileInfo, error)
}

// FromFile reads the headers of an open file. [File.Close] closes it, and if it
// is no ELF file it is closed at once.
func FromFile(file Opened) (*File, error) {
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", file.Name())
	}
	var f *File
	if err == nil {
		f, err = New(file, info.Size(), file.Name())
	}
	if err != nil {
		_ = file.Close() // nothing was written
		return nil, err
	}
	f.owned = file
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.stored = st.Blocks * 512
	}
	return f, nil
}

// New reads the headers of the ELF file r, which is size bytes long; name is
// used in errors.
func New(r io.ReaderAt, size int64, name string) (*File, error) {
	f := &File{r: r, size: size, stored: size, name: name, limit: maxDecompressed, budget: &temporaryBudget, ctx: context.Background()}
	f.buildID = sync.OnceValue(f.findBuildID)
	f.embedded = sync.OnceValues(f.openEmbedded)
	var ident [64]byte
	n := min(size, int64(len(ident)))
	if err := f.ReadFull(ident[:n], 0, "ELF header"); err != nil {
		return nil, err
	}
	if n < 52 || string(ident[:4]) != elf.ELFMAG {
		return nil, f.Errorf(0, "not an ELF file")
	}
	if elf.Data(ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, f.Errorf(elf.EI_DATA, "byte order is not little-endian")
	}
	switch class := elf.Class(ident[elf.EI_CLASS]); class {
	case elf.ELFCLASS64:
		f.is64 = true
		if n < 64 {
			return nil, f.Errorf(0, "truncated ELF header")
		}
	case elf.ELFCLASS32:
	default:
		return nil, f.Errorf(elf.EI_CLASS, "unknown ELF class %d", class)
	}

	h := fields{ident[:], f.is64}
	f.typ = elf.Type(h.half(16, 16))
	f.machine = elf.Machine(h.half(18, 18))
	f.entry = h.word(24, 24)
	f.sections.off = int64(h.word(32, 40))
	f.sections.entsize, f.sections.num, f.sections.names = h.half(46, 58), h.half(48, 60), h.half(50, 62)
	var err error
	f.segments, err = f.readSegments(int64(h.word(28, 32)), h.half(42, 54), h.half(44, 56))
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Close releases the temporary files that hold decompressed sections, and the
// file itself if [Open] or [FromFile] made f. Readers of its sections fail afterwards. A
// File made by [New] whose compressed sections were not opened needs no Close.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, c := range f.temporary {
		errs = append(errs, c.Close())
	}
	f.temporary = nil
	if f.owned != nil {
		errs = append(errs, f.owned.Close())
		f.owned = nil
	}
	f.closed = true
	return errors.Join(errs...)
}

// SetContext has the end of ctx end the decompression of sections, which may take
// minutes: an error that wraps its cause is then all that there is of a section.
func (f *File) SetContext(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ctx = ctx
}

func (f *File) context() context.Context {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ctx
}

// Name returns the file's name as given to [New] or [Open].
func (f *File) Name() string { return f.name }

// Size returns the file's length in bytes.
func (f *File) Size() int64 { return f.size }

// Stored returns how many bytes the file occupies where it is kept: fewer than
// [File.Size] if it is sparse, or if its file system compresses or inlines it.
func (f *File) Stored() int64 { return f.stored }

// Reader returns a reader of the whole file.
func (f *File) Reader() *io.SectionReader { return io.NewSectionReader(f.r, 0, f.size) }

// Type returns whether the file is an executable, a shared object (which
// position-independent executables are too), or something else.
func (f *File) Type() elf.Type { return f.typ }

// Machine returns the architecture that the file's code is for.
func (f *File) Machine() elf.Machine { return f.machine }

// Entry returns the link-time virtual address at which the program begins.
func (f *File) Entry() uint64 { return f.entry }

// WordSize returns the width of an address, in bytes: 4 or 8.
func (f *File) WordSize() int { return f.pick(4, 8) }

// Word returns the little-endian address at the start of b, which is at least
// [File.WordSize] bytes long.
func (f *File) Word(b []byte) uint64 { return fields{b, f.is64}.word(0, 0) }

// Bytes returns n bytes from offset off. Nothing is allocated for what lies
// outside of the file, whatever a header asks for; the caller bounds n by what
// the structure can sensibly need. what names the structure in errors.
func (f *File) Bytes(off int64, n uint64, what string) ([]byte, error) {
	if err := f.check(off, n, what); err != nil {
		return nil, err
	}
	buf := make([]byte, n)
	return buf, f.ReadFull(buf, off, what)
}

// ReadFull fills buf from offset off. what names the structure in errors.
func (f *File) ReadFull(buf []byte, off int64, what string) error {
	if err := f.check(off, uint64(len(buf)), what); err != nil {
		return err
	}
	if n, err := f.r.ReadAt(buf, off); n < len(buf) {
		return fmt.Errorf("%s: reading %s at offset %#x: %w", f.name, what, off, err)
	}
	return nil
}

// check returns an error unless n bytes at off lie within the file.
func (f *File) check(off int64, n uint64, what string) error {
	if off < 0 || off > f.size || n > uint64(f.size-off) {
		return f.Errorf(off, "%s lies outside of the file", what)
	}
	return nil
}

// Errorf returns a [FormatError] about what stands at offset off.
func (f *File) Errorf(off int64, format string, args ...any) error {
	return &FormatError{File: f.name, Offset: off, Problem: fmt.Sprintf(format, args...)}
}

// pick returns the one of two sizes or offsets that belongs to the class of
// the file.
func (f *File) pick(class32, class64 int) int {
	if f.is64 {
		return class64
	}
	return class32
}
