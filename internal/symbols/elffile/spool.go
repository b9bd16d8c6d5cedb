package elffile

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// spool stores what r yields until its end, which must be from least to most
// bytes: in memory, or what is larger in a temporary file that lives until f is
// closed.
func (f *File) spool(r io.Reader, least, most uint64) (*io.SectionReader, error) {
	// One byte more shows data that exceeds the limit.
	r = io.LimitReader(Interruptible(f.context(), r), int64(most)+1)
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
	t, err := newTemporary(f.budget)
	if err != nil {
		return nil, err
	}
	n, err = io.Copy(t, io.MultiReader(&head, r))
	if err == nil {
		err = checkSize(n, least, most)
	}
	if err == nil {
		err = f.keep(t)
	}
	if err != nil {
		_ = t.Close() // nobody will read it
		return nil, err
	}
	return io.NewSectionReader(t.file, 0, n), nil
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

// storeError is a failure to store decompressed data, which is no fault of the
// data.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() + " (TMPDIR chooses another place)" }

func (e *storeError) Unwrap() error { return e.err }
