package dwarf

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
)

// maxInterned bounds the names cached by a table, in bytes.
const maxInterned = 1 << 20

// stringTable reads a string section. It returns the same string for the same offset as
// long as it is cached: linkers merge equal strings, and many units refer to the same
// functions and files.
type stringTable struct {
	*pages
	mu    sync.Mutex
	known map[uint64]string
	used  int // bytes

	long atomic.Int64 // bytes of the strings longer than maxShort that were read
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
	text, err := s.read(off)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || s.used > maxInterned {
		s.known, s.used = map[uint64]string{}, 0
	}
	s.known[off] = text
	s.used += len(text) + 48 // approximately, including the map
	return text, nil
}

const (
	// maxShort is the number of bytes to read of a string at first. Most names are shorter, and
	// too scattered for caching pages.
	maxShort = 512
	// maxLong is the number of bytes to read of longer strings. After that, they are truncated to
	// maxShort: in a crafted file, millions of functions can share the text of their names.
	maxLong = 64 << 20
)

var shortBuffers = sync.Pool{New: func() any { return new([maxShort]byte) }}

// read reads the string at an offset.
func (s *stringTable) read(off uint64) (string, error) {
	short := shortBuffers.Get().(*[maxShort]byte)
	defer shortBuffers.Put(short)
	b := short[:min(maxShort, s.size-min(off, s.size))]
	if err := s.pages.read(b, off); err != nil {
		return "", err
	}
	if text, _, ok := bytes.Cut(b, []byte{0}); ok {
		return string(text), nil
	}
	text, err := s.cstring(off)
	return s.bounded(text), err
}

// bounded returns text, truncated if it is long and there was too much long text before.
func (s *stringTable) bounded(text string) string {
	if len(text) > maxShort && s.long.Add(int64(len(text))) > maxLong {
		return strings.Clone(text[:maxShort])
	}
	return text
}
