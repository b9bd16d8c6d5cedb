package unwindmap

import (
	"cmp"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// spoolPages bounds the pages that a spool holds: a gigabyte of disk.
const spoolPages = 1 << 14

// spool keeps the contents of pages in a file without a name, each at its own
// place; the file has holes where none is.
type spool struct {
	file *os.File // nil until something is kept
	held map[uint32]bool
}

func (s *spool) write(page uint32, content []byte) error {
	if !s.held[page] && len(s.held) >= spoolPages {
		return fmt.Errorf("keep unwind tables on disk: more than %d bytes of them", spoolPages*pageBytes)
	}
	if s.file == nil {
		file, err := createTemporary()
		if err != nil {
			return fmt.Errorf("keep unwind tables on disk: %w", err)
		}
		s.file, s.held = file, map[uint32]bool{}
	}
	if _, err := s.file.WriteAt(content, int64(page)*pageBytes); err != nil {
		return fmt.Errorf("keep unwind tables on disk: %w", err)
	}
	s.held[page] = true
	return nil
}

// createTemporary creates a file that nobody can see and that disappears when it is
// closed, not in /tmp if possible, which is often memory.
func createTemporary() (*os.File, error) {
	dir := cmp.Or(os.Getenv("TMPDIR"), "/var/tmp")
	if f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o600); err == nil {
		return f, nil
	}
	f, err := os.CreateTemp("", "fulgur-unwind-")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

func (s *spool) read(page uint32, content []byte) error {
	if _, err := s.file.ReadAt(content, int64(page)*pageBytes); err != nil {
		return fmt.Errorf("read unwind tables back: %w", err)
	}
	return nil
}

func (s *spool) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
