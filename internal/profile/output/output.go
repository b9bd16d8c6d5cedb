package output

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"fulgur/internal/files/atomicfile"
)

// Output is the destination of a profile, see [atomicfile.File].
type Output interface {
	io.Writer
	// Commit makes the output appear. Abort discards it unless it was committed.
	Commit() error
	Abort() error
}

// IsURL reports whether path is a URL to which a profile is sent.
func IsURL(path string) bool {
	return strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://")
}

// IsStdout reports whether path stands for the standard output of [Create].
func IsStdout(path string) bool { return path == "" || path == "-" }

// IsStream reports whether output to path cannot be undone: path is a standard stream or
// a URL, or exists and is not a regular file.
func IsStream(path string) bool {
	if IsURL(path) || IsStdout(path) || path == "/dev/stdout" || path == "/dev/stderr" || strings.HasPrefix(path, "/dev/fd/") {
		return true
	}
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// Create opens the output at path, where "-" or "" means stdout. Call it before measuring
// or reading anything, so that an output that is not writable fails at once. Once ctx is done,
// it and the output no longer wait for a reader.
func Create(ctx context.Context, path string, stdout io.Writer) (Output, error) {
	if path == "" || path == "-" {
		return stream{w: WaitUntil(ctx, stdout)}, nil
	}
	f, err := atomicfile.Create(ctx, path)
	if err != nil {
		return nil, err // rather than a nil *File, which would be a non-nil Output
	}
	return f, nil
}

// stream is an output that cannot be undone.
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
