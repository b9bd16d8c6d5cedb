package unwindmap

import (
	"fmt"
	"os"

	"fulgur/internal/files/tempfile"
)

// spoolPages bounds the pages in a spool: a gigabyte of disk.
const spoolPages = 1 << 14

// spool stores the contents of pages in a sparse, unnamed file, each page at its own
// offset.
type spool struct {
	file *os.File // nil until the first write
	held map[uint32]bool
}

func (s *spool) write(page uint32, content []byte) error {
	if !s.held[page] && len(s.held) >= spoolPages {
		return fmt.Errorf("keep unwind tables on disk: more than %d bytes", spoolPages*pageBytes)
	}
	if s.file == nil {
		file, err := tempfile.Create()
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
	err := s.file.Close()
	s.file, s.held = nil, nil
	return err
}
