package unpack

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"slices"

	"github.com/ulikunitz/xz/lzma"
)

// maxDictionary bounds the memory of the LZMA2 decoder, in bytes: the dictionary of xz
// -9, the largest preset.
const maxDictionary = 64 << 20

// xzReader decompresses .xz streams one after another (the .xz file format 1.2.1). It parses the
// container itself, because a file may request a dictionary of 4 GiB, which the library would
// allocate. It skips the index at the end of a stream, which only repeats the sizes of the blocks.
type xzReader struct {
	r      *countingReader
	check  func() hash.Hash // checksum of a block's data; nil if the stream has none
	block  io.Reader        // nil between blocks
	sum    hash.Hash        // of the block
	header bool             // whether the stream's header was read
	first  bool             // whether a stream was read
	done   bool
}

// NewXZReader returns a reader of the decompressed data of r.
func NewXZReader(r io.Reader) io.Reader {
	return &xzReader{r: &countingReader{r: bufio.NewReader(r)}}
}

// Read implements io.Reader.
func (x *xzReader) Read(p []byte) (int, error) {
	for !x.done {
		if !x.header {
			if err := x.nextStream(); err != nil {
				return 0, fmt.Errorf("xz: %w", noEOF(err))
			}
			continue
		}
		if x.block == nil {
			if err := x.nextBlock(); err != nil {
				return 0, fmt.Errorf("xz: %w", noEOF(err))
			}
			continue
		}
		n, err := x.block.Read(p)
		if x.sum != nil {
			_, _ = x.sum.Write(p[:n]) // Write of a hash never fails
		}
		switch {
		case errors.Is(err, io.EOF):
			if err := x.endBlock(); err != nil {
				return n, fmt.Errorf("xz: %w", noEOF(err))
			}
		case err != nil:
			return n, fmt.Errorf("xz: %w", noEOF(err))
		}
		if n > 0 || len(p) == 0 {
			return n, nil
		}
	}
	return 0, io.EOF
}

// nextStream reads the header of a stream, or detects the end after at least one. Zeros may
// precede further streams, four at a time.
func (x *xzReader) nextStream() error {
	var h [12]byte
	for {
		n, err := io.ReadFull(x.r, h[:4])
		if n == 0 && x.first && errors.Is(err, io.EOF) {
			x.done = true
			return nil
		}
		if err != nil {
			return err
		}
		if !x.first || h[0] != 0 {
			break
		}
		if h != [12]byte{} {
			return errors.New("not an xz stream after the first one")
		}
	}
	if _, err := io.ReadFull(x.r, h[4:]); err != nil {
		return err
	}
	x.header, x.first = true, true
	return x.readHeader(h)
}

// readHeader reads the stream's header, which selects the checksum of blocks.
func (x *xzReader) readHeader(h [12]byte) error {
	x.check = nil
	if string(h[:6]) != "\xfd7zXZ\x00" || h[6] != 0 || crc32.ChecksumIEEE(h[6:8]) != binary.LittleEndian.Uint32(h[8:]) {
		return errors.New("not an xz stream")
	}
	switch h[7] {
	case 0x00:
	case 0x01:
		x.check = func() hash.Hash { return crc32.NewIEEE() }
	case 0x04:
		x.check = func() hash.Hash { return crc64.New(crc64.MakeTable(crc64.ECMA)) }
	case 0x0a:
		x.check = sha256.New
	default:
		return fmt.Errorf("unknown check %#x", h[7])
	}
	return nil
}

// nextBlock reads the header of a block, or detects the index.
func (x *xzReader) nextBlock() error {
	var size [1]byte
	if _, err := io.ReadFull(x.r, size[:]); err != nil {
		return err
	}
	if size[0] == 0 {
		x.header = false
		return x.skipIndex()
	}
	h := make([]byte, (int(size[0])+1)*4)
	h[0] = size[0]
	if _, err := io.ReadFull(x.r, h[1:]); err != nil {
		return err
	}
	body, crc := h[:len(h)-4], h[len(h)-4:]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(crc) {
		return errors.New("corrupt block header")
	}
	dictionary, err := dictionarySize(body[1:])
	if err != nil {
		return err
	}
	if dictionary > maxDictionary {
		return fmt.Errorf("needs a dictionary of %d bytes, more than any preset of xz", dictionary)
	}
	x.block, err = lzma.Reader2Config{DictCap: int(max(dictionary, lzma.MinDictCap))}.NewReader2(x.r)
	if x.check != nil {
		x.sum = x.check()
	}
	return err
}

// skipIndex skips the rest of the index and the footer of a stream.
func (x *xzReader) skipIndex() error {
	before := x.r.n - 1 // its first byte was read
	records, err := binary.ReadUvarint(x.r)
	for range records {
		for range 2 { // sizes of a block
			if err == nil {
				_, err = binary.ReadUvarint(x.r)
			}
		}
		if err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	const checksum, footer = 4, 12
	_, err = io.CopyN(io.Discard, x.r, (before-x.r.n)&3+checksum+footer)
	return err
}

// dictionarySize returns the dictionary size in bytes from the block header h, which
// comes without its size and checksum.
func dictionarySize(h []byte) (uint64, error) {
	const (
		filterCount, compressedSize, uncompressedSize = 0x03, 0x40, 0x80
		filterLZMA2                                   = 0x21
	)
	flags, rest := h[0], h[1:]
	if flags&filterCount != 0 {
		return 0, errors.New("unsupported filter, want only LZMA2")
	}
	for _, present := range []byte{compressedSize, uncompressedSize} {
		if flags&present != 0 {
			_, n := binary.Uvarint(rest)
			if n <= 0 {
				return 0, errors.New("corrupt block header")
			}
			rest = rest[n:]
		}
	}
	if len(rest) < 3 || rest[0] != filterLZMA2 || rest[1] != 1 || rest[2] > 40 {
		return 0, errors.New("unsupported filter, want only LZMA2")
	}
	bits := rest[2]
	if bits == 40 {
		return 1<<32 - 1, nil
	}
	return uint64(2|bits&1) << (bits/2 + 11), nil
}

// endBlock reads the padding and checksum after a block's data.
func (x *xzReader) endBlock() error {
	x.block = nil
	// The size of everything before the block is a multiple of four bytes.
	var tail [3]byte
	if _, err := io.ReadFull(x.r, tail[:-x.r.n&3]); err != nil {
		return err
	}
	if x.sum == nil {
		return nil
	}
	want := x.sum.Sum(nil)
	if x.sum.Size() < sha256.Size { // CRCs are little-endian
		slices.Reverse(want)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(x.r, got); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("data does not match its checksum")
	}
	return nil
}

// noEOF converts a premature end of the input into an error.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// countingReader counts the bytes read.
type countingReader struct {
	r *bufio.Reader
	n int64
}

// ReadByte implements io.ByteReader.
func (c *countingReader) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
