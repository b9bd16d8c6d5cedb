// Package unpack reads compressed files: gzip, zstd, xz and bzip2, which it recognizes by their
// first bytes. Input is untrusted: the memory of a decoder is bounded, the amount of data is up to
// the caller.
package unpack

import (
	"bufio"
	"compress/bzip2"
	"errors"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory of the zstd decoder, in bytes: the window of zstd --long, and
// the largest that zstd itself decodes by default.
const maxWindow = 128 << 20

// A Method is a way of compression.
type Method struct {
	// Name is the name of the program that compresses so: "gzip".
	Name   string
	begins func(head string) bool
	open   func(io.Reader) (io.Reader, error)
}

// methods are the known methods. Data compressed with no other method begins so.
var methods = [...]Method{
	{"gzip", with("\x1f\x8b"), func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{"zstd", isZstd, func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	}},
	{"xz", with("\xfd7zXZ\x00"), func(r io.Reader) (io.Reader, error) { return NewXZReader(r), nil }},
	{"bzip2", isBzip2, func(r io.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil }},
}

func with(magic string) func(string) bool {
	return func(head string) bool { return strings.HasPrefix(head, magic) }
}

// isZstd also accepts a skippable frame, with which pzstd's files begin.
func isZstd(head string) bool {
	return strings.HasPrefix(head, "\x28\xb5\x2f\xfd") || len(head) >= 4 && head[0]&0xf0 == 0x50 && head[1:4] == "\x2a\x4d\x18"
}

// isBzip2 checks the head of the first block, too: "BZh" can begin text.
func isBzip2(head string) bool {
	return len(head) >= magicSize && head[:3] == "BZh" && head[4:magicSize] == "1AY&SY"
}

// magicSize is the number of bytes by which all methods are recognized.
const magicSize = 10

// Of returns the method with which data was compressed that begins with head, nil if it was not.
func Of(head []byte) *Method {
	for i := range methods {
		if methods[i].begins(string(head[:min(len(head), magicSize)])) {
			return &methods[i]
		}
	}
	return nil
}

// Peek returns the method with which the data of r was compressed, nil if it was not, and leaves r
// at its beginning.
func Peek(r *bufio.Reader) *Method {
	head, _ := r.Peek(magicSize) // a shorter input may also be compressed
	return Of(head)
}

// ErrTruncated is the error of compressed data without its end.
var ErrTruncated = errors.New("truncated: the end of the compressed data is missing")

// Reader returns a reader of the unpacked data of r. Its errors are [ErrTruncated] or the
// decoder's. Data of several compressed files in a row is read as a whole.
func (m *Method) Reader(r io.Reader) (io.Reader, error) {
	unpacked, err := m.open(r)
	if err != nil {
		return nil, Truncated(err)
	}
	return reader{unpacked}, nil
}

type reader struct{ r io.Reader }

// Read implements io.Reader.
func (r reader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	return n, Truncated(err)
}

// Truncated returns [ErrTruncated] for the error of an unexpected end, and any other error as it is.
func Truncated(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return err
}
