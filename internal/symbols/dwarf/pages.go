package dwarf

import (
	"fmt"
	"io"
	"strings"

	"fulgur/internal/symbols/dwarfdata"
	"fulgur/internal/symbols/pagecache"
)

const (
	maxPages = 128 // 512 KiB of a section

	// maxString bounds a name, in bytes, as in symbol tables. Longer names, which occur only
	// with excessive templates and in crafted files, are truncated: many can share their text.
	maxString = 8 << 10
)

// pages reads a section in any order through a small cache. It is safe for concurrent use.
type pages struct {
	sec   Section
	file  string
	name  string
	size  uint64
	cache *pagecache.Cache
}

func newPages(sec Section, file, name string) *pages {
	p := &pages{sec: sec, file: file, name: name}
	if sec != nil && sec.Size() > 0 {
		p.size = uint64(sec.Size())
	}
	p.cache = pagecache.New(p.size, maxPages, p.read)
	return p
}

func (p *pages) errorf(off uint64, format string, args ...any) error {
	return &FormatError{File: p.file, Section: p.name, Offset: off, Problem: fmt.Sprintf(format, args...)}
}

// read fills b from offset off, bypassing the cache.
func (p *pages) read(b []byte, off uint64) error {
	if off > p.size || uint64(len(b)) > p.size-off {
		return p.errorf(off, "section ends within %d bytes", len(b))
	}
	if len(b) == 0 {
		return nil // there may be no section
	}
	n, err := p.sec.ReadAt(b, int64(off))
	if n == len(b) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	if strings.HasPrefix(err.Error(), p.file+": ") {
		return err
	}
	return fmt.Errorf("%s: %s: read %d bytes at offset %#x: %w", p.file, p.name, len(b), off, err)
}

// bytes returns n bytes at off.
func (p *pages) bytes(off, n uint64) ([]byte, error) {
	if off > p.size || n > p.size-off {
		return nil, p.errorf(off, "section ends within %d bytes", n)
	}
	if n == 0 {
		return nil, nil
	}
	return p.cache.Bytes(off, n)
}

// word reads a number of size bytes, at most 8.
func (p *pages) word(off uint64, size uint8) (uint64, error) {
	b, err := p.bytes(off, uint64(size))
	if err != nil {
		return 0, err
	}
	r := dwarfdata.Reader{Data: b}
	if size == 3 {
		return uint64(r.U24()), nil
	}
	return r.Word(size), nil
}

// cstring reads the NUL-terminated string at off, truncated to maxString.
func (p *pages) cstring(off uint64) (string, error) {
	b, _, err := p.cache.CString(off, maxString)
	return string(b), err
}

// parse calls f with increasingly long windows at off until f returns true, whether its
// reader is good or not. No window exceeds limit bytes.
func (p *pages) parse(off, first, limit uint64, f func(*dwarfdata.Reader) bool) error {
	limit = min(limit, p.size-min(off, p.size))
	for n := min(first, limit); ; n = min(4*n, limit) {
		b, err := p.cache.Bytes(off, n)
		if err != nil {
			return err
		}
		r := dwarfdata.Reader{Data: b}
		if f(&r) {
			return nil
		}
		if n >= limit {
			return p.errorf(off, "data that ends too early")
		}
	}
}
