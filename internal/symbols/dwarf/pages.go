package dwarf

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"

	"fulgur/internal/symbols/dwarfdata"
)

const (
	pageSize = 4 << 10
	maxSlots = 128 // 512 KiB of a section

	// maxString bounds a name, in bytes. C++ templates reach about 100 KiB.
	maxString = 1 << 20
)

// pages reads a section in any order through a small cache. Pages never change, so its
// results stay valid after a page leaves the cache. It is safe for concurrent use.
type pages struct {
	sec  Section
	file string
	name string
	size uint64
	// slots is a direct-mapped cache, indexed by page number: no lock, no list.
	slots []atomic.Pointer[page]
}

type page struct {
	number uint64
	data   []byte
}

func newPages(sec Section, file, name string) *pages {
	p := &pages{sec: sec, file: file, name: name}
	if sec != nil && sec.Size() > 0 {
		p.size = uint64(sec.Size())
		p.slots = make([]atomic.Pointer[page], min(maxSlots, (p.size+pageSize-1)/pageSize))
	}
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
	return fmt.Errorf("%s: %s: read %d bytes at offset %#x: %w", p.file, p.name, len(b), off, err)
}

// page returns the bytes from off to the end of its page.
func (p *pages) page(off uint64) ([]byte, error) {
	if off >= p.size {
		return nil, p.errorf(off, "offset beyond the end")
	}
	number := off / pageSize
	slot := &p.slots[number%uint64(len(p.slots))]
	pg := slot.Load()
	if pg == nil || pg.number != number {
		start := number * pageSize
		pg = &page{number: number, data: make([]byte, min(pageSize, p.size-start))}
		if err := p.read(pg.data, start); err != nil {
			return nil, err
		}
		slot.Store(pg)
	}
	return pg.data[off%pageSize:], nil
}

// window returns n bytes at off, or fewer at the end of the section.
func (p *pages) window(off, n uint64) ([]byte, error) {
	b, err := p.page(off)
	if err != nil {
		return nil, err
	}
	if uint64(len(b)) >= n {
		return b[:n:n], nil
	}
	n = min(n, p.size-off)
	if uint64(len(b)) >= n {
		return b, nil
	}
	b = make([]byte, n)
	return b, p.read(b, off)
}

// bytes returns n bytes at off.
func (p *pages) bytes(off, n uint64) ([]byte, error) {
	if off > p.size || n > p.size-off {
		return nil, p.errorf(off, "section ends within %d bytes", n)
	}
	if n == 0 {
		return nil, nil
	}
	return p.window(off, n)
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

// cstring reads the NUL-terminated string at off.
func (p *pages) cstring(off uint64) (string, error) {
	b, err := p.page(off)
	if err != nil {
		return "", err
	}
	if n := bytes.IndexByte(b, 0); n >= 0 {
		return string(b[:n]), nil
	}
	long := bytes.Clone(b)
	for len(long) <= maxString {
		b, err = p.page(off + uint64(len(long)))
		if err != nil {
			return "", err
		}
		if n := bytes.IndexByte(b, 0); n >= 0 {
			return string(append(long, b[:n]...)), nil
		}
		long = append(long, b...)
	}
	return "", p.errorf(off, "string longer than %d bytes", maxString)
}

// parse calls f with increasingly long windows at off until f returns true, whether its
// reader is good or not. No window exceeds limit bytes.
func (p *pages) parse(off, first, limit uint64, f func(*dwarfdata.Reader) bool) error {
	limit = min(limit, p.size-min(off, p.size))
	for n := min(first, limit); ; n = min(4*n, limit) {
		b, err := p.window(off, n)
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
