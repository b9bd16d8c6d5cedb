package perfdata

import (
	"errors"
	"fmt"
	"io"
	"os"

	"fulgur/internal/bolt"
)

// Input is an opened perf.data file or text of perf script.
type Input struct {
	file     *os.File
	name     string
	size     int64
	perfData bool
}

// Open opens the input at path; "-" is standard input. What comes through a
// pipe is copied to a temporary file first, since perf.data is read twice.
func Open(path string) (*Input, error) {
	name, file := path, os.Stdin
	if path == "-" {
		name = "standard input"
	} else {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, err
		}
	}
	in := &Input{file: file, name: name}
	if err := in.prepare(); err != nil {
		_ = in.file.Close()
		return nil, err
	}
	return in, nil
}

// prepare makes sure that the file can be read twice, and finds out what it is.
func (in *Input) prepare() error {
	info, err := in.file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s: is a directory (of perf record --threads): send it through perf script", in.name)
	}
	if !info.Mode().IsRegular() {
		if err := in.spool(); err != nil {
			return err
		}
		if info, err = in.file.Stat(); err != nil {
			return err
		}
	}
	in.size = info.Size()
	head := make([]byte, len(magicFile))
	n, err := in.file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	in.perfData = IsPerfData(head[:n])
	return nil
}

// spool copies the input to a temporary file that vanishes when it is closed.
func (in *Input) spool() error {
	tmp, err := os.CreateTemp("", "fulgur-perfdata-*")
	if err != nil {
		return err
	}
	err = os.Remove(tmp.Name())
	if err == nil {
		if _, err = io.Copy(tmp, in.file); err != nil {
			err = fmt.Errorf("copying %s to a temporary file: %w (TMPDIR chooses another place)", in.name, err)
		}
	}
	if err != nil {
		_ = tmp.Close()
		return err
	}
	_ = in.file.Close() // was only read
	in.file = tmp
	return nil
}

// Collect adds the samples to c.
func (in *Input) Collect(c *bolt.Collector, opts Options) (Stats, error) {
	if in.perfData {
		return Collect(in.file, in.size, in.name, c, opts)
	}
	return CollectScript(io.NewSectionReader(in.file, 0, in.size), in.name, c, opts)
}

// Close closes the input.
func (in *Input) Close() error { return in.file.Close() }
