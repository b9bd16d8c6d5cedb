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
// compressed form can sensibly hold, is an error.
func (s *Section) Open() (*io.SectionReader, error) {
	data, err := s.open()
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(data, 0, data.Size()), nil // with a position of its own
}

func (s *Section) openOnce() (*io.SectionReader, error) {
	if s.Type == elf.SHT_NOBITS {
		return nil, fmt.Errorf("%s: %s: %w", s.file.name, s.Name, ErrNoContents)
	}
	if err := s.file.check(int64(s.Offset), s.Size, "section "+s.Name); err != nil {
		return nil, err
	}
	raw := io.NewSectionReader(s.file.r, int64(s.Offset), int64(s.Size))
	switch {
	case s.Flags&elf.SHF_COMPRESSED != 0:
		return s.decompress(raw)
	case strings.HasPrefix(s.Name, oldCompressedPrefix):
		return s.decompressOld(raw)
	}
	return raw, nil
}

// decompress reads the gABI's compression header (Elf64_Chdr) and what follows
// it.
func (s *Section) decompress(raw *io.SectionReader) (*io.SectionReader, error) {
	header := make([]byte, s.file.pick(12, 24))
	if _, err := io.ReadFull(raw, header); err != nil {
		return nil, s.errorf("truncated compression header of %s", s.Name)
	}
	h := fields{header, s.file.is64}
	size := h.word(4, 8)
	switch typ := elf.CompressionType(h.uint32(0, 0)); typ {
	case elf.COMPRESS_ZLIB:
		return s.inflate(raw, size)
	case elf.COMPRESS_ZSTD:
		d, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, s.corrupt(err)
		}
		defer d.Close()
		return s.spoolExactly(d, size)
	default:
		return nil, s.errorf("section %s is compressed in an unknown way (type %d)", s.Name, typ)
	}
}

// decompressOld reads the form before the gABI's: "ZLIB" and the size in eight
// bytes, big-endian, stand before the data. A section without them is not
// compressed.
func (s *Section) decompressOld(raw *io.SectionReader) (*io.SectionReader, error) {
	var header [12]byte
	if n, _ := raw.ReadAt(header[:], 0); n < len(header) || string(header[:4]) != "ZLIB" {
		return raw, nil
	}
	_, err := raw.Seek(int64(len(header)), io.SeekStart)
	if err != nil {
		return nil, err
	}
	return s.inflate(raw, binary.BigEndian.Uint64(header[4:]))
}

// inflate decompresses zlib data of the given size.
func (s *Section) inflate(raw io.Reader, size uint64) (*io.SectionReader, error) {
	z, err := zlib.NewReader(raw)
	if err != nil {
		return nil, s.corrupt(err)
	}
	return s.spoolExactly(z, size)
}

// spoolExactly stores what r decompresses, which must be size bytes.
func (s *Section) spoolExactly(r io.Reader, size uint64) (*io.SectionReader, error) {
	if size > s.file.limit || size > maxInMemory && size/maxRatio > s.Size {
		return nil, s.errorf("section %s of %d bytes claims to be %d bytes decompressed", s.Name, s.Size, size)
	}
	return s.spool(r, size, size)
}

// spool stores what r decompresses, which must be from least to most bytes.
func (s *Section) spool(r io.Reader, least, most uint64) (*io.SectionReader, error) {
	data, err := s.file.spool(r, least, most)
	switch {
	case err == nil:
		return data, nil
	case errors.As(err, new(*storeError)):
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
