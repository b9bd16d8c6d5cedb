package elffile

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

const (
	// oldCompressedPrefix is the prefix of sections compressed by binutils before the
	// gABI defined SHF_COMPRESSED.
	oldCompressedPrefix = ".zdebug_"

	// maxDecompressed bounds a decompressed section, in bytes. The largest browsers and
	// databases have a few GiB.
	maxDecompressed = 8 << 30
	// maxRatio bounds the compression ratio of a section larger than maxInMemory. zlib
	// cannot exceed 1032, and compiler output shrinks to about a fifth.
	maxRatio = 1100
	// maxInMemory is the maximum size of decompressed data in memory, in bytes. Larger
	// data goes to a file.
	maxInMemory = 1 << 20
	// maxWindow bounds the memory of the zstd decoder, in bytes. The level used by
	// compilers and linkers needs 2 MiB, the highest usual level 8.
	maxWindow = 32 << 20
)

// ErrNoContents is wrapped by the error of [Section.Open] for a section that occupies
// memory but no bytes of this file: .bss, and code and data in a separate debug file.
var ErrNoContents = errors.New("section has no contents in this file")

// Open returns the section's contents for random access, and their size.
//
// The first call decompresses a compressed section (SHF_COMPRESSED with zlib or zstd, or
// the old .zdebug_ form) completely, since neither format supports random access. Up to 1
// MiB stays in memory. Larger contents go to an unnamed temporary file in $TMPDIR, or
// else in /var/tmp, so that memory does not grow with the size of the section.
// [File.Close] releases both.
//
// Open fails if a section is larger than 8 GiB, or larger than its compressed form can
// reasonably hold. It fails if the temporary files of the process together would need more
// than 16 GiB, or more than half of the disk space that is free without them. It also fails
// if the file's context ([File.SetContext]) is done during decompression.
func (s *Section) Open() (*io.SectionReader, error) {
	data, err := s.open()
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(data, 0, data.Size()), nil // with its own position
}

// Lazy is like [Section.Open] but decompresses the contents when they are first read.
// Errors in compressed data then occur on reading.
func (s *Section) Lazy() (*Lazy, error) {
	stored, err := s.stored()
	if err != nil {
		return nil, err
	}
	return &Lazy{s, int64(stored.size)}, nil
}

// Lazy is the contents of a section, decompressed on first use. It is safe for concurrent
// use.
type Lazy struct {
	s    *Section
	size int64
}

// Size returns the decompressed size of the section, in bytes.
func (l *Lazy) Size() int64 { return l.size }

// ReadAt implements [io.ReaderAt]. Its errors include the errors of [Section.Open].
func (l *Lazy) ReadAt(b []byte, off int64) (int, error) {
	data, err := l.s.open()
	if err != nil {
		return 0, err
	}
	return data.ReadAt(b, off)
}

// stored describes how the file stores a section's contents.
type stored struct {
	data *io.SectionReader // the rest of it is the contents
	by   elf.CompressionType
	size uint64 // size of the contents according to the file
}

// plain is the type of uncompressed data.
const plain elf.CompressionType = 0

// openOnce opens the section, decompressing it if necessary.
func (s *Section) openOnce() (*io.SectionReader, error) {
	stored, err := s.stored()
	if err != nil {
		return nil, err
	}
	switch stored.by {
	case elf.COMPRESS_ZLIB:
		z, err := zlib.NewReader(stored.data)
		if err != nil {
			return nil, s.corrupt(err)
		}
		return s.spool(z, stored.size, stored.size)
	case elf.COMPRESS_ZSTD:
		d, err := zstd.NewReader(stored.data, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, s.corrupt(err)
		}
		defer d.Close()
		return s.spool(d, stored.size, stored.size)
	}
	return stored.data, nil
}

// stored determines how the file stores the section's contents, and checks that their size is
// plausible.
func (s *Section) stored() (stored, error) {
	if s.Type == elf.SHT_NOBITS {
		return stored{}, fmt.Errorf("%s: %s: %w", s.file.name, s.Name, ErrNoContents)
	}
	if err := s.file.check(int64(s.Offset), s.Size, "section "+s.Name); err != nil {
		return stored{}, err
	}
	c := stored{io.NewSectionReader(s.file.r, int64(s.Offset), int64(s.Size)), plain, s.Size}
	var err error
	switch {
	case s.Flags&elf.SHF_COMPRESSED != 0:
		err = s.readHeader(&c)
	case strings.HasPrefix(s.Name, oldCompressedPrefix):
		err = s.readOldHeader(&c)
	}
	if err != nil {
		return stored{}, err
	}
	if c.by != plain && (c.size > s.file.limit || c.size > maxInMemory && c.size/maxRatio > s.Size) {
		return stored{}, s.errorf("section %s of %d bytes claims to be %d bytes decompressed", s.Name, s.Size, c.size)
	}
	return c, nil
}

// readHeader reads the gABI's compression header (Elf64_Chdr), which precedes the data.
func (s *Section) readHeader(c *stored) error {
	header := make([]byte, s.file.pick(12, 24))
	if _, err := io.ReadFull(c.data, header); err != nil {
		return s.errorf("truncated compression header of %s", s.Name)
	}
	h := fields{header, s.file.is64}
	c.by, c.size = elf.CompressionType(h.uint32(0, 0)), h.word(4, 8)
	if c.by != elf.COMPRESS_ZLIB && c.by != elf.COMPRESS_ZSTD {
		return s.errorf("section %s is compressed in an unknown way (type %d)", s.Name, c.by)
	}
	return nil
}

// readOldHeader reads the header of the older format: "ZLIB" and the size in eight bytes,
// big-endian, before the data. Without it the section is not compressed.
func (s *Section) readOldHeader(c *stored) error {
	var header [12]byte
	if n, _ := c.data.ReadAt(header[:], 0); n < len(header) || string(header[:4]) != "ZLIB" {
		return nil
	}
	c.by, c.size = elf.COMPRESS_ZLIB, binary.BigEndian.Uint64(header[4:])
	_, err := c.data.Seek(int64(len(header)), io.SeekStart)
	return err
}

// spool stores the decompressed data of r. Its size in bytes must be in the range from
// minSize to maxSize.
func (s *Section) spool(r io.Reader, minSize, maxSize uint64) (*io.SectionReader, error) {
	data, err := s.file.spool(r, minSize, maxSize)
	switch {
	case err == nil:
		return data, nil
	case errors.As(err, new(*storeError)) || s.file.context().Err() != nil:
		return nil, fmt.Errorf("%s: decompressing %s: %w", s.file.name, s.Name, err)
	}
	return nil, s.corrupt(err)
}

func (s *Section) corrupt(err error) error {
	return s.errorf("decompressing section %s: %v", s.Name, err)
}

func (s *Section) errorf(format string, args ...any) error {
	return s.file.Errorf(int64(s.Offset), format, args...)
}
