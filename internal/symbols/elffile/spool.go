package elffile

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// spool stores all data of r, whose size in bytes must be in the range from minSize to maxSize:
// in memory, or if it is larger, in a temporary file that exists until f is closed.
func (f *File) spool(r io.Reader, minSize, maxSize uint64) (*io.SectionReader, error) {
	// One extra byte detects data above the limit.
	r = io.LimitReader(Interruptible(f.context(), r), int64(maxSize)+1)
	var head bytes.Buffer
	n, err := head.ReadFrom(io.LimitReader(r, maxInMemory+1))
	if err != nil {
		return nil, err
	}
	if n <= maxInMemory {
		if err := checkSize(n, minSize, maxSize); err != nil {
			return nil, err
		}
		return io.NewSectionReader(bytes.NewReader(head.Bytes()), 0, n), nil
	}
	t, err := newTemporary(f.budget)
	if err != nil {
		return nil, err
	}
	n, err = io.Copy(t, io.MultiReader(&head, r))
	if err == nil {
		err = checkSize(n, minSize, maxSize)
	}
	if err == nil {
		err = f.keep(t)
	}
	if err != nil {
		_ = t.Close() // nothing will read it
		return nil, err
	}
	return io.NewSectionReader(t.file, 0, n), nil
}

func checkSize(n int64, minSize, maxSize uint64) error {
	switch {
	case uint64(n) > maxSize:
		return fmt.Errorf("more than the %d bytes allowed", maxSize)
	case uint64(n) < minSize:
		return fmt.Errorf("got %d bytes of %d", n, minSize)
	}
	return nil
}

// keep closes c when the file is closed.
func (f *File) keep(c io.Closer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &storeError{os.ErrClosed}
	}
	f.temporary = append(f.temporary, c)
	return nil
}

// storeError is a failure to store decompressed data, rather than an error in the data.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() + " (set TMPDIR to use another directory)" }

func (e *storeError) Unwrap() error { return e.err }
