// Package pagecache reads files and sections in any order through a small cache, for tables
// that refer to each other and are too large for memory.
package pagecache

import (
	"bytes"
	"cmp"
	"io"
	"sync/atomic"
)

// PageSize is the size of a page in bytes.
const PageSize = 4 << 10

// Cache caches pages of data. Pages never change, so its results stay valid after a page
// leaves the cache. It is safe for concurrent use.
type Cache struct {
	size uint64
	read func(b []byte, off uint64) error
	// slots is a direct-mapped cache, indexed by page number: no lock, no list.
	slots []atomic.Pointer[page]
}

type page struct {
	number uint64
	data   []byte
}

// New returns a cache of at most maxPages pages of data with size bytes. read fills b from
// offset off, or returns an error, also if that is beyond the end.
func New(size uint64, maxPages int, read func(b []byte, off uint64) error) *Cache {
	n := min(uint64(maxPages), size/PageSize+1)
	return &Cache{size: size, read: read, slots: make([]atomic.Pointer[page], n)}
}

// Page returns the bytes from off to the end of its page.
func (c *Cache) Page(off uint64) ([]byte, error) {
	if off >= c.size {
		return nil, cmp.Or(c.read(make([]byte, 1), off), io.ErrUnexpectedEOF)
	}
	number := off / PageSize
	slot := &c.slots[number%uint64(len(c.slots))]
	p := slot.Load()
	if p == nil || p.number != number {
		start := number * PageSize
		p = &page{number: number, data: make([]byte, min(PageSize, c.size-start))}
		if err := c.read(p.data, start); err != nil {
			return nil, err
		}
		slot.Store(p)
	}
	return p.data[off%PageSize:], nil
}

// Bytes returns n bytes at off, or fewer at the end of the data.
func (c *Cache) Bytes(off, n uint64) ([]byte, error) {
	b, err := c.Page(off)
	if err != nil {
		return nil, err
	}
	if uint64(len(b)) >= n {
		return b[:n:n], nil
	}
	n = min(n, c.size-off)
	if uint64(len(b)) >= n {
		return b, nil
	}
	b = make([]byte, n)
	return b, c.read(b, off)
}

// CString returns the text at off up to a zero byte, or its first limit bytes. ended reports
// whether it found the zero byte.
func (c *Cache) CString(off, limit uint64) (text []byte, ended bool, err error) {
	for {
		b, err := c.Page(off + uint64(len(text)))
		if err != nil {
			return nil, false, err
		}
		b = b[:min(uint64(len(b)), limit-uint64(len(text)))]
		b, _, ended = bytes.Cut(b, []byte{0})
		if len(text) == 0 {
			text = b[:len(b):len(b)] // append copies it
		} else {
			text = append(text, b...)
		}
		if ended || uint64(len(text)) == limit {
			return text, ended, nil
		}
	}
}
