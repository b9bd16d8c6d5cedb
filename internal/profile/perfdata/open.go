package perfdata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"fulgur/internal/bolt"
	"fulgur/internal/files/ctxfile"
	"fulgur/internal/files/unpack"
)

// Input is an opened perf.data file or output of perf script.
type Input struct {
	file     *ctxfile.File
	name     string
	size     int64
	perfData bool
}

// Open opens the input at path; "-" means standard input. A pipe is first copied to a
// temporary file, since perf.data is read twice. When ctx is done, reading fails with its
// error.
func Open(ctx context.Context, path string) (*Input, error) {
	file, err := ctxfile.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	in := &Input{file: file, name: file.Name()}
	if err := in.prepare(ctx); err != nil {
		_ = in.file.Close()
		return nil, err
	}
	return in, nil
}

// prepare makes sure that the file can be read twice, and detects its format.
func (in *Input) prepare(ctx context.Context) error {
	info, err := in.file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s: is a directory (of perf record --threads): send it through perf script", in.name)
	}
	regular, err := ctxfile.Regular(ctx, in.file)
	if err != nil {
		return err
	}
	in.file = regular
	if regular, err = unpackedIf(ctx, regular, func(*unpack.Method, []byte) bool { return true }); err != nil {
		return err
	}
	in.file = regular
	if info, err = in.file.Stat(); err != nil {
		return err
	}
	in.size = info.Size()
	head := make([]byte, 4096)
	n, err := in.file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	in.perfData = IsPerfData(head[:n])
	if !in.perfData && bytes.IndexByte(head[:n], 0) >= 0 {
		return fmt.Errorf("%s: neither a perf.data file nor text of perf script", in.name)
	}
	return nil
}

// Name returns the name of the input for errors.
func (in *Input) Name() string { return in.name }

// Text reports whether the input is not perf.data, and so is read as output of perf
// script.
func (in *Input) Text() bool { return !in.perfData }

// Collect adds the samples to c until ctx is done.
func (in *Input) Collect(ctx context.Context, c *bolt.Collector, opts Options) (Stats, error) {
	if in.perfData {
		return Collect(ctx, in.file, in.size, in.name, c, opts)
	}
	return CollectScript(io.NewSectionReader(in.file, 0, in.size), in.name, c, opts)
}

// Close closes the input.
func (in *Input) Close() error { return in.file.Close() }
