package output

import (
	"fmt"
	"io"
	"os"
	"strings"

	"fulgur/internal/files/atomicfile"
)

// Output is where a profile goes; see [atomicfile.File].
type Output interface {
	io.Writer
	// Commit makes what was written appear, and Abort gives it up unless it was
	// committed.
	Commit() error
	Abort() error
}

// IsStream reports whether what is written to path cannot be taken back: it is a
// standard stream, or there is something that is no regular file.
func IsStream(path string) bool {
	if path == "" || path == "-" || path == "/dev/stdout" || path == "/dev/stderr" || strings.HasPrefix(path, "/dev/fd/") {
		return true
	}
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// Create opens the output at path, "-" or none being stdout. It is called before
// anything is measured or read, so that an output that cannot be written fails at
// once.
func Create(path string, stdout io.Writer) (Output, error) {
	if path == "" || path == "-" {
		return stream{w: stdout}, nil
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err // and not a nil *File, which were an output
	}
	return f, nil
}

// stream is an output that cannot be taken back.
type stream struct{ w io.Writer }

func (s stream) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	if err != nil {
		err = fmt.Errorf("write standard output: %w", err)
	}
	return n, err
}

func (stream) Commit() error { return nil }
func (stream) Abort() error  { return nil }
