package elffile

import (
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	// oldCompressedPrefix begins the names of sections that binutils
	// compressed before the gABI had SHF_COMPRESSED.
	oldCompressedPrefix = ".zdebug_"

	// maxDecompressed bounds a section that is decompressed, in bytes. The
	// largest of browsers and databases have a few GiB.
	maxDecompressed = 8 << 30
	// maxRatio bounds how much larger than its compressed form a section of
	// more than maxInMemory may claim to be: zlib cannot do better than
	// 1032, and what compilers write shrinks to a fifth.
	maxRatio = 1100
	// maxInMemory is the size in bytes up to which decompressed data stays
	// in memory.
	maxInMemory = 1 << 20
	// maxWindow bounds the memory of the zstd decoder, in bytes. The level
	// that compilers and linkers use needs 2 MiB, the highest usual one 8.
	maxWindow = 32 << 20
)

// ErrNoContents is wrapped by the error of [Section.Open] for a section that
// occupies memory, but no bytes of this file: .bss, and code and data in a
// separate debug file.
var ErrNoContents = errors.New("section has no contents in this file")

// Open returns the section's contents for random access, and their size.
//
// A section that is compressed (SHF_COMPRESSED with zlib or zstd, or the old
// .zdebug_ form) is decompressed whole when it is first opened, since neither
// format allows to start in the middle. Up to 1 MiB of it stays in memory; more
// goes into a temporary file without a name below $TMPDIR or else /var/tmp, so
// that the memory a section costs does not grow with it. [File.Close] gives
// both back. A section that claims to be larger than 8 GiB, or than its
// compressed form can sensibly hold, is an error. So is one that would have the
// temporary files of the process, together, take more than half of what is free
// there without them, or more than 16 GiB; and the end of the file's context
// ([File.SetContext]) while it is decompressed.
func (s *Section) Open() (*io.SectionReader, error) {
	data, err := s.open()
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(data, 0, data.Size()), nil // with a position of its own
}

// Lazy returns the section's contents as [Section.Open] does, but decompresses
// them only when some of them are read. What is wrong with compressed data then
// shows in reading.
func (s *Section) Lazy() (*Lazy, error) {
	stored, err := s.stored()
	if err != nil {
		return nil, err
	}
	return &Lazy{s, int64(stored.size)}, nil
}

// Lazy is the contents of a section, decompressed when first read. Several
// goroutines may read it.
type Lazy struct {
	s    *Section
	size int64
}

// Size returns the number of bytes in the section, decompressed.
func (l *Lazy) Size() int64 { return l.size }

// ReadAt implements [io.ReaderAt]. Its errors include those of [Section.Open].
func (l *Lazy) ReadAt(b []byte, off int64) (int, error) {
	data, err := l.s.open()
	if err != nil {
		return 0, err
	}
	return data.ReadAt(b, off)
}

// stored is how a file holds a section's contents.
type stored struct {
	data *io.SectionReader // what is left to read of it are the contents
	by   elf.CompressionType
	size uint64 // of the contents, as the file claims
}

// plain is the type of what is not compressed.
const plain elf.CompressionType = 0

// openOnce opens the section, and decompresses it if it is compressed.
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

// stored finds how the file holds the section's contents. The size of those is
// one that they can have.
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

// readHeader reads the gABI's compression header (Elf64_Chdr), which stands
// before the data.
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

// readOldHeader reads the form before the gABI's: "ZLIB" and the size in eight
// bytes, big-endian, stand before the data. A section without them is not
// compressed.
func (s *Section) readOldHeader(c *stored) error {
	var header [12]byte
	if n, _ := c.data.ReadAt(header[:], 0); n < len(header) || string(header[:4]) != "ZLIB" {
		return nil
	}
	c.by, c.size = elf.COMPRESS_ZLIB, binary.BigEndian.Uint64(header[4:])
	_, err := c.data.Seek(int64(len(header)), io.SeekStart)
	return err
}

// spool stores what r decompresses, which must be from least to most bytes.
func (s *Section) spool(r io.Reader, least, most uint64) (*io.SectionReader, error) {
	data, err := s.file.spool(r, least, most)
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
