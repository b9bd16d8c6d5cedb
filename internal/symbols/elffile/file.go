// Package elffile reads untrusted ELF files. It checks every size in a header against the
// file before it reads or allocates anything, and reports malformed files as a
// [FormatError] with the file's name and the offset.
//
// The format is the System V gABI with the extensions of GNU and LLVM for notes, debug links
// and compressed sections. The package reads 32-bit and 64-bit files, but only little-endian
// ones, because the machines that fulgur supports run no other code. Relocatable files
// (ET_REL) can be opened, but are not relocated.
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

// Limits on the sizes in headers. Real files stay far below.
const (
	maxSegments    = 1 << 12
	maxSections    = 1 << 16
	maxSectionName = 256
)

// File is an ELF file: an executable, a shared library, a separate debug file or a vDSO.
// It keeps the segments and, once requested, the section headers in memory. It reads
// contents on demand, so its reader must stay open while the File is in use. Its methods
// are safe for concurrent use.
type File struct {
	r    io.ReaderAt
	size int64
	// stored is the number of bytes of the file on disk.
	stored int64
	name   string
	owned  io.Closer // closed with the File; nil if the caller owns it

	is64     bool
	typ      elf.Type
	machine  elf.Machine
	entry    uint64
	segments []Segment
	sections sectionTable

	ids      func() IDs
	hash     func() string
	embedded func() (*File, error)

	limit  uint64  // maximum size of a decompressed section, in bytes
	budget *budget // shared by all temporary files

	mu        sync.Mutex
	ctx       context.Context
	temporary []io.Closer // holds decompressed sections
	closed    bool
}

// FormatError reports bytes that violate a file's format.
type FormatError struct {
	// File is the file's name as given by the caller.
	File string
	// Offset is the start of the malformed structure in the file, in bytes.
	Offset int64
	// Problem describes the error.
	Problem string
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: %s at offset %#x", e.File, e.Problem, e.Offset)
}

// Open opens the ELF file at path. [File.Close] closes it.
func Open(path string) (*File, error) {
	// O_NONBLOCK avoids waiting for the writer of a pipe.
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

// FromFile reads the headers of an open file and takes ownership of the file: [File.Close]
// closes it. On error, FromFile closes it.
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

// New reads the headers of the ELF file r, which is size bytes long. name is used in
// errors.
func New(r io.ReaderAt, size int64, name string) (*File, error) {
	f := &File{r: r, size: size, stored: size, name: name, limit: maxDecompressed, budget: &temporaryBudget, ctx: context.Background()}
	f.ids, f.hash = sync.OnceValue(f.findIDs), sync.OnceValue(f.sumUp)
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

// Close releases the temporary files of decompressed sections, and closes the file itself
// if f was made by [Open] or [FromFile]. Readers of sections fail afterwards. A File made
// by [New] needs no Close unless compressed sections were opened.
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

// SetContext makes the decompression of sections, which may take minutes, stop when ctx
// is done. Opening a section then fails with an error that wraps the context's cause.
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

// Name returns the file name given to [New] or [Open].
func (f *File) Name() string { return f.name }

// Size returns the file's length in bytes.
func (f *File) Size() int64 { return f.size }

// Stored returns the number of bytes that the file occupies on disk. It is less than
// [File.Size] if the file is sparse, or compressed or inlined by its file system.
func (f *File) Stored() int64 { return f.stored }

// Reader returns a reader of the whole file.
func (f *File) Reader() *io.SectionReader { return io.NewSectionReader(f.r, 0, f.size) }

// Type returns the type of the file: an executable, a shared object (including
// position-independent executables), or another type.
func (f *File) Type() elf.Type { return f.typ }

// Machine returns the architecture of the file's code.
func (f *File) Machine() elf.Machine { return f.machine }

// Entry returns the link-time virtual address of the entry point.
func (f *File) Entry() uint64 { return f.entry }

// WordSize returns the size of an address, in bytes: 4 or 8.
func (f *File) WordSize() int { return f.pick(4, 8) }

// Word returns the little-endian address at the start of b, which must have at least
// [File.WordSize] bytes.
func (f *File) Word(b []byte) uint64 { return fields{b, f.is64}.word(0, 0) }

// Bytes returns n bytes at offset off. It allocates nothing for a range outside the file;
// the caller must bound n by the maximum size of the structure. what names the structure
// in errors.
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

// check returns an error unless the n bytes at off are within the file.
func (f *File) check(off int64, n uint64, what string) error {
	if off < 0 || off > f.size || n > uint64(f.size-off) {
		return f.Errorf(off, "%s lies outside of the file", what)
	}
	return nil
}

// Errorf returns a [FormatError] for offset off.
func (f *File) Errorf(off int64, format string, args ...any) error {
	return &FormatError{File: f.name, Offset: off, Problem: fmt.Sprintf(format, args...)}
}

// pick returns the size or offset for the class of the file.
func (f *File) pick(class32, class64 int) int {
	if f.is64 {
		return class64
	}
	return class32
}
