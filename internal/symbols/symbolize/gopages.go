package symbolize

import (
	"bytes"
	"encoding/binary"

	"fulgur/internal/symbols/elffile"
)

// span is a range of bytes in a file.
type span struct{ off, size uint64 }

// pageReader reads small parts of a file in any order through a small cache. It is for tables
// that refer to each other and are too large for memory. It is not safe for concurrent use.
type pageReader struct {
	f *elffile.File
	// slots is a direct-mapped cache, indexed by page number.
	slots [pageSlots]page
}

// A cache of 1 MiB holds the data for neighboring functions of a sorted batch.
const (
	pageSize  = 8 << 10
	pageSlots = 128
)

// page is a part of the file at a multiple of pageSize. data is nil until it is read.
type page struct {
	number uint64
	data   []byte
}

func newPageReader(f *elffile.File) *pageReader { return &pageReader{f: f} }

// at returns the cached bytes at off, at least one. They are valid until the next call.
// what names the structure in errors.
func (r *pageReader) at(off uint64, what string) ([]byte, error) {
	number := off / pageSize
	p := &r.slots[number%pageSlots]
	if p.data == nil || p.number != number {
		size := uint64(r.f.Size())
		if off >= size {
			return nil, r.f.Errorf(int64(off), "%s lies outside of the file", what)
		}
		start := number * pageSize
		data := p.data[:0:cap(p.data)]
		if data == nil {
			data = make([]byte, pageSize)
		}
		data = data[:min(pageSize, size-start)]
		p.data = nil // until it is complete
		if err := r.f.ReadFull(data, int64(start), what); err != nil {
			return nil, err
		}
		p.number, p.data = number, data
	}
	if rest := p.data[min(off%pageSize, uint64(len(p.data))):]; len(rest) > 0 {
		return rest, nil
	}
	return nil, r.f.Errorf(int64(off), "%s lies outside of the file", what)
}

// read fills b from offset off.
func (r *pageReader) read(b []byte, off uint64, what string) error {
	for len(b) > 0 {
		data, err := r.at(off, what)
		if err != nil {
			return err
		}
		n := copy(b, data)
		b, off = b[n:], off+uint64(n)
	}
	return nil
}

// uint32 returns the number at offset off.
func (r *pageReader) uint32(off uint64, what string) (uint32, error) {
	b, err := r.at(off, what)
	if err != nil {
		return 0, err
	}
	if len(b) < 4 {
		b = make([]byte, 4)
		if err := r.read(b, off, what); err != nil {
			return 0, err
		}
	}
	return binary.LittleEndian.Uint32(b), nil
}

// cstring returns the NUL-terminated string at offset i of s, truncated to maxName.
func (r *pageReader) cstring(s span, i uint64, what string) ([]byte, error) {
	if i >= s.size {
		return nil, r.f.Errorf(int64(s.off), "%s at %#x of a table of %#x bytes", what, i, s.size)
	}
	var long []byte
	for left := min(s.size-i, maxName); left > 0; {
		b, err := r.at(s.off+i, what)
		if err != nil {
			return nil, err
		}
		b = b[:min(left, uint64(len(b)))]
		if end := bytes.IndexByte(b, 0); end >= 0 {
			return append(long, b[:end]...), nil
		}
		long = append(long, b...)
		i, left = i+uint64(len(b)), left-uint64(len(b))
	}
	return long, nil
}
