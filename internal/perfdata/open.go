package perfdata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"fulgur/internal/bolt"
	"fulgur/internal/files/ctxfile"
	"fulgur/internal/files/unpack"
)

// Input is an opened perf.data file or folder, or output of perf script.
type Input struct {
	file     *ctxfile.File
	name     string
	size     int64
	perfData bool
	parts    []*ctxfile.File // of a folder, after file
	folder   string          // if file may be the first of one, or ""
}

// maxParts bounds the files of a folder: perf writes one for each thread of its own, so at most one for
// each CPU.
const maxParts = 1 << 12

// Open opens the input at path; "-" means standard input. A pipe is first copied to a
// temporary file, since perf.data is read twice. When ctx is done, reading fails with its
// error.
func Open(ctx context.Context, path string) (*Input, error) {
	file, err := ctxfile.Open(ctx, FileIn(path))
	if err != nil {
		return nil, err
	}
	in, err := Of(ctx, file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return in, nil
}

// FileIn returns the path of the first file, if path is a folder that perf record --threads or --kcore
// has written. Otherwise, it returns path.
func FileIn(path string) string {
	if path == "-" {
		return path
	}
	first := filepath.Join(path, "data")
	if info, err := os.Stat(first); err == nil && info.Mode().IsRegular() {
		return first
	}
	return path
}

// Of is [Open] of an opened regular file.
func Of(ctx context.Context, file *ctxfile.File) (*Input, error) {
	in := &Input{file: file, name: file.Name()}
	if filepath.Base(in.name) == "data" {
		in.folder = filepath.Dir(in.name)
	}
	if err := in.prepare(ctx); err != nil {
		return nil, errors.Join(err, in.CloseParts())
	}
	return in, nil
}

// prepare makes sure that the input can be read twice, and detects its format.
func (in *Input) prepare(ctx context.Context) error {
	regular, err := ctxfile.Regular(ctx, in.file)
	if err != nil {
		return err
	}
	in.file = regular
	if regular, err = unpackedIf(ctx, regular, func(*unpack.Method, []byte) bool { return true }); err != nil {
		return err
	}
	in.file = regular
	info, err := in.file.Stat()
	if err != nil {
		return err
	}
	in.size = info.Size()
	head := make([]byte, 4096)
	n, err := in.file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	in.perfData = IsPerfData(head[:n])
	switch {
	case in.folder != "" && in.perfData:
		return in.openParts(ctx)
	case !in.perfData && bytes.IndexByte(head[:n], 0) >= 0:
		return fmt.Errorf("%s: neither a perf.data file nor text of perf script", in.name)
	}
	return nil
}

// openParts opens the other files of a folder: data.0, data.1 and so on.
func (in *Input) openParts(ctx context.Context) error {
	for i := range maxParts {
		name := filepath.Join(in.folder, fmt.Sprint("data.", i))
		if info, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		} else if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", name)
		}
		f, err := ctxfile.Open(ctx, name)
		if err != nil {
			return err
		}
		in.parts = append(in.parts, f)
	}
	return fmt.Errorf("%s: more than %d files", in.folder, maxParts)
}

// Kallsyms returns the path of the symbols of the recorded kernel (perf record --kcore), or "".
func (in *Input) Kallsyms() string {
	if in.folder == "" {
		return ""
	}
	return filepath.Join(in.folder, "kcore_dir", "kallsyms")
}

// open reads the headers.
func (in *Input) open() (*file, error) {
	f, err := openFile(in.file, in.size, in.name)
	if err != nil {
		return nil, err
	}
	for _, p := range in.parts {
		info, err := p.Stat()
		if err != nil {
			return nil, err
		}
		f.parts = append(f.parts, part{p, info.Size(), p.Name()})
	}
	return f, nil
}

// CallChains reads the samples of the input, which must not be text, until ctx is done. The profile is not by
// thread. Malformed records are left out, and so is the end of a file that is cut short; it is an error if no
// samples are left.
//
// It unwinds the copies of user stacks that perf record --call-graph dwarf takes. Their samples say why the
// stack ends. Other samples do not.
func (in *Input) CallChains(ctx context.Context, o ChainOptions) (*CallChains, error) {
	f, err := in.open()
	if err != nil {
		return nil, err
	}
	return f.callChains(ctx, o)
}

// Name returns the name of the input for errors.
func (in *Input) Name() string { return in.name }

// Text reports whether the input is not perf.data, and so is read as output of perf
// script.
func (in *Input) Text() bool { return !in.perfData }

// Collect adds the samples to c until ctx is done.
func (in *Input) Collect(ctx context.Context, c *bolt.Collector, opts Options) (Stats, error) {
	if in.perfData {
		f, err := in.open()
		if err != nil {
			return Stats{}, err
		}
		return f.collect(ctx, c, opts)
	}
	return collectScript(io.NewSectionReader(in.file, 0, in.size), in.name, c, opts)
}

// Close closes the input.
func (in *Input) Close() error {
	return errors.Join(in.file.Close(), in.CloseParts())
}

// CloseParts closes all but the file that was given to [Of].
func (in *Input) CloseParts() (err error) {
	for _, p := range in.parts {
		err = errors.Join(err, p.Close())
	}
	return err
}
