package pagecache

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// data has texts that cross pages, and no zero byte at the end.
var data = bytes.Repeat(append(bytes.Repeat([]byte("x"), 2999), 0), 5)[:3*PageSize+5]

func newCache(reads *int) *Cache {
	return New(uint64(len(data)), 2, func(b []byte, off uint64) error {
		*reads++
		if off+uint64(len(b)) > uint64(len(data)) {
			return io.ErrUnexpectedEOF
		}
		copy(b, data[off:])
		return nil
	})
}

func TestBytes(t *testing.T) {
	reads := 0
	c := newCache(&reads)
	for _, w := range []struct{ off, n, want int }{
		{0, 10, 10}, {PageSize - 1, 2, 2}, {100, 2 * PageSize, 2 * PageSize}, {3 * PageSize, 5, 5}, {3*PageSize + 1, 99, 4},
	} {
		got, err := c.Bytes(uint64(w.off), uint64(w.n))
		if err != nil || !bytes.Equal(got, data[w.off:w.off+w.want]) {
			t.Errorf("%d bytes at %d: got %d bytes, %v, want %d", w.n, w.off, len(got), err, w.want)
		}
	}
	for _, off := range []uint64{uint64(len(data)), 1 << 63} {
		if _, err := c.Bytes(off, 1); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("at %#x: got error %v, want %v", off, err, io.ErrUnexpectedEOF)
		}
	}
}

// A page is read once while it is in the cache, and stays valid after that.
func TestPage(t *testing.T) {
	reads := 0
	c := newCache(&reads)
	first, err := c.Page(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []uint64{1, PageSize, PageSize + 1, 2 * PageSize, 0} { // page 2 evicts page 0
		if _, err := c.Page(off); err != nil {
			t.Fatal(err)
		}
	}
	if reads != 4 {
		t.Errorf("got %d reads, want 4", reads)
	}
	if !bytes.Equal(first, data[:PageSize]) {
		t.Error("got other contents of an evicted page")
	}
}

func TestCString(t *testing.T) {
	reads := 0
	c := newCache(&reads)
	for _, s := range []struct {
		off, limit, want int
		ended            bool
	}{
		{0, 5000, 2999, true}, {3000, 5000, 2999, true}, {3000, 2000, 2000, false}, {2999, 1, 0, true}, {5998, 2, 1, true},
	} {
		got, ended, err := c.CString(uint64(s.off), uint64(s.limit))
		if err != nil || ended != s.ended || !bytes.Equal(got, data[s.off:s.off+s.want]) {
			t.Errorf("at %d: got %d bytes, %t, %v, want %d, %t", s.off, len(got), ended, err, s.want, s.ended)
		}
	}
	if _, _, err := c.CString(12000, 5000); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got error %v for a text without an end, want %v", err, io.ErrUnexpectedEOF)
	}
}
