package otlpclient

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// compressed returns data compressed by a method: "none", "gzip" or "zstd".
func compressed(data []byte, method string) ([]byte, error) {
	var b bytes.Buffer
	w, err := compressor(&b, method)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return b.Bytes(), nil
}

// gzipLevel needs two thirds of the time of gzip's default level, and makes profiles 8 %
// larger.
const gzipLevel = 3

// compressor returns a writer that compresses to w.
func compressor(w io.Writer, method string) (io.WriteCloser, error) {
	switch method {
	case "gzip":
		return gzip.NewWriterLevel(w, gzipLevel)
	case "zstd":
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	}
	return nopCloser{w}, nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// method is a compression for gRPC. It implements encoding.Compressor.
type method string

// Name returns the method's name in the grpc-encoding header.
func (m method) Name() string { return string(m) }

// Compress returns a writer that compresses to w.
func (m method) Compress(w io.Writer) (io.WriteCloser, error) { return compressor(w, string(m)) }

// Decompress returns a reader of a compressed response.
func (m method) Decompress(r io.Reader) (io.Reader, error) {
	if m == "gzip" {
		return gzip.NewReader(r)
	}
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxAnswer))
}
