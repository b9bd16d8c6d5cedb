package decode

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"

	"fulgur/internal/profile"
)

// sniffed is the number of bytes from which the format is detected.
const sniffed = 64 << 10

// limited reads at most left bytes of r, and nothing after ctx is done.
type limited struct {
	ctx  context.Context
	r    io.Reader
	left int64
	err  error // the error for a longer input
}

// Read implements io.Reader.
func (l *limited) Read(b []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	if l.left <= 0 {
		return 0, l.err
	}
	n, err := l.r.Read(b[:min(int64(len(b)), l.left)])
	l.left -= int64(n)
	return n, err
}

// errTruncated is the error of compressed data without its end.
var errTruncated = errors.New("truncated: the end of the compressed data is missing")

// compressed is a reader of compressed data.
type compressed struct{ r io.Reader }

// Read implements io.Reader.
func (c compressed) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	return n, ofCompressed(err)
}

// ofCompressed returns an error of reading compressed data.
func ofCompressed(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errTruncated
	}
	return err
}

var gzipMagic = []byte{0x1f, 0x8b}

// unpack returns a reader of the contents of r, which may be compressed, until ctx is
// done.
func unpack(ctx context.Context, r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(&limited{ctx, r, profile.MaxUnpacked, profile.ErrUnpacked}, sniffed)
	if b, _ := in.Peek(len(gzipMagic)); !bytes.Equal(b, gzipMagic) { // a short input is not gzip
		return in, nil
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, ofCompressed(err)
	}
	in = bufio.NewReaderSize(&limited{ctx, compressed{z}, profile.MaxUnpacked, profile.ErrUnpacked}, sniffed)
	if b, _ := in.Peek(len(gzipMagic)); bytes.Equal(b, gzipMagic) {
		return nil, errors.New("compressed twice: unpack it with gunzip first")
	}
	return in, nil
}

// readAll reads an input that must be in memory as a whole.
func readAll(ctx context.Context, r io.Reader) ([]byte, error) {
	tooLong := fmt.Errorf("more than %d MiB unpacked", profile.MaxHeld>>20)
	return io.ReadAll(&limited{ctx, r, profile.MaxHeld, tooLong})
}
