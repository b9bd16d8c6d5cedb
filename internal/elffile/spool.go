package elffile

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// spool stores what r yields until its end, which must be from least to most
// bytes: in memory, or what is larger in a temporary file that lives until f is
// closed.
func (f *File) spool(r io.Reader, least, most uint64) (*io.SectionReader, error) {
	// One byte more shows data that exceeds the limit.
	r = io.LimitReader(r, int64(most)+1)
	var head bytes.Buffer
	n, err := head.ReadFrom(io.LimitReader(r, maxInMemory+1))
	if err != nil {
		return nil, err
	}
	if n <= maxInMemory {
		if err := checkSize(n, least, most); err != nil {
			return nil, err
		}
		return io.NewSectionReader(bytes.NewReader(head.Bytes()), 0, n), nil
	}
	file, err := createTemporary()
	if err != nil {
		return nil, &storeError{err}
	}
	n, err = io.Copy(storeWriter{file}, io.MultiReader(&head, r))
	if err == nil {
		err = checkSize(n, least, most)
	}
	if err == nil {
		err = f.keep(file)
	}
	if err != nil {
		_ = file.Close() // nobody will read it
		return nil, err
	}
	return io.NewSectionReader(file, 0, n), nil
}

func checkSize(n int64, least, most uint64) error {
	switch {
	case uint64(n) > most:
		return fmt.Errorf("there are more than the %d bytes that may be", most)
	case uint64(n) < least:
		return fmt.Errorf("there are %d bytes of %d", n, least)
	}
	return nil
}

// keep closes c with the file.
func (f *File) keep(c io.Closer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &storeError{os.ErrClosed}
	}
	f.temporary = append(f.temporary, c)
	return nil
}

// createTemporary creates a file that nobody can see and that disappears when
// it is closed. /var/tmp is the place for large ones: /tmp is often memory.
func createTemporary() (*os.File, error) {
	dir := cmp.Or(os.Getenv("TMPDIR"), "/var/tmp")
	if f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600); err == nil {
		return f, nil
	}
	f, err := os.CreateTemp(os.TempDir(), "fulgur-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// storeError is a failure to store decompressed data, which is no fault of the
// data.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() + " (TMPDIR chooses another place)" }

func (e *storeError) Unwrap() error { return e.err }

// storeWriter marks the errors of writing, so that they can be told from those
// of decompressing.
type storeWriter struct{ file *os.File }

func (w storeWriter) Write(b []byte) (int, error) {
	n, err := w.file.Write(b)
	if err != nil {
		err = &storeError{err}
	}
	return n, err
}
