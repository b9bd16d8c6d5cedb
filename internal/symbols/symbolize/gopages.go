package symbolize

import (
	"encoding/binary"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/pagecache"
)

// span is a range of bytes in a file.
type span struct{ off, size uint64 }

// has reports whether s contains n bytes at offset i.
func (s span) has(i, n uint64) bool { return n <= s.size && i <= s.size-n }

// maxPages is 1 MiB, which holds the data for neighboring functions of a sorted batch.
const maxPages = 1 << 20 / pagecache.PageSize

// pageReader reads Go's tables in a file.
type pageReader struct {
	*pagecache.Cache
	f *elffile.File
}

func newPageReader(f *elffile.File) *pageReader {
	return &pageReader{f: f, Cache: pagecache.New(uint64(f.Size()), maxPages, func(b []byte, off uint64) error {
		return f.ReadFull(b, int64(off), "Go symbol table")
	})}
}

// read returns n bytes at offset off. what names the structure in errors.
func (r *pageReader) read(off, n uint64, what string) ([]byte, error) {
	b, err := r.Bytes(off, n)
	if err == nil && uint64(len(b)) < n {
		err = r.f.Errorf(int64(off), "%s lies outside of the file", what)
	}
	return b, err
}

// uint32 returns the number at offset off.
func (r *pageReader) uint32(off uint64, what string) (uint32, error) {
	b, err := r.read(off, 4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

// cstring returns the NUL-terminated string at offset i of s, truncated to maxName.
func (r *pageReader) cstring(s span, i uint64, what string) ([]byte, error) {
	if i >= s.size {
		return nil, r.f.Errorf(int64(s.off), "%s at %#x of a table of %#x bytes", what, i, s.size)
	}
	b, _, err := r.CString(s.off+i, min(s.size-i, maxName))
	return b, err
}
