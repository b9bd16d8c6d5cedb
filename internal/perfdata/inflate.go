package perfdata

import (
	"io"
	"iter"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is the largest accepted window of a zstd stream, in bytes. The
// highest level of perf record (-z 22) uses it.
const maxWindow = 128 << 20

// inflater decompresses the zstd stream that is split over the compressed records of a
// file. perf flushes the stream at the end of each record but never ends it. So after
// each record, all available output must be read, but no more: the decompressor runs as a
// coroutine that requests input by yielding nothing.
type inflater struct {
	in   []byte
	next func() ([]byte, bool)
	stop func()

	yield  func([]byte) bool
	closed bool
	err    error
}

func newInflater() (*inflater, error) {
	z := &inflater{}
	// Without concurrency, the decoder reads in the coroutine itself.
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	z.next, z.stop = iter.Pull(func(yield func([]byte) bool) {
		defer dec.Close()
		z.yield = yield
		z.err = z.run(dec)
	})
	return z, nil
}

// feed sets the next part of the stream. It must stay valid until read returns nil.
func (z *inflater) feed(b []byte) { z.in = b }

// read returns more decompressed bytes, valid until the next call, or nil if it needs
// more input.
func (z *inflater) read() ([]byte, error) {
	b, ok := z.next()
	if !ok {
		if z.err == nil {
			z.err = io.ErrUnexpectedEOF
		}
		return nil, z.err
	}
	return b, nil
}

func (z *inflater) close() { z.stop() }

// run decompresses until the consumer stops.
func (z *inflater) run(dec *zstd.Decoder) error {
	buf := make([]byte, 1<<16)
	if err := dec.Reset(inflaterInput{z}); err != nil {
		return err
	}
	for {
		n, err := dec.Read(buf)
		if n > 0 && !z.hand(buf[:n]) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// hand passes b to the consumer and reports whether to continue.
func (z *inflater) hand(b []byte) bool {
	z.closed = z.closed || !z.yield(b)
	return !z.closed
}

// inflaterInput is the decoder's input: the parts one after the other.
type inflaterInput struct{ z *inflater }

func (r inflaterInput) Read(p []byte) (int, error) {
	for len(r.z.in) == 0 {
		if !r.z.hand(nil) {
			return 0, io.EOF
		}
	}
	n := copy(p, r.z.in)
	r.z.in = r.z.in[n:]
	return n, nil
}
