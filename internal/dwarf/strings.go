package dwarf

import "sync"

// maxInterned is the number of bytes of names that a table keeps.
const maxInterned = 1 << 20

// stringTable reads a string section. It returns one string for one offset as
// long as it remembers it: linkers merge equal strings, and many units name
// the same functions and files.
type stringTable struct {
	*pages
	mu    sync.Mutex
	known map[uint64]string
	size  int
}

func newStrings(sec Section, file, name string) *stringTable {
	return &stringTable{pages: newPages(sec, file, name)}
}

// at returns the string at an offset.
func (s *stringTable) at(off uint64) (string, error) {
	s.mu.Lock()
	text, ok := s.known[off]
	s.mu.Unlock()
	if ok {
		return text, nil
	}
	text, err := s.cstring(off)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || s.size > maxInterned {
		s.known, s.size = map[uint64]string{}, 0
	}
	s.known[off] = text
	s.size += len(text) + 48 // and about that in the map
	return text, nil
}
