package symbolize

import "bytes"

// stringTable reads names from a table of NUL-terminated strings by way of a
// window: names that lie together, as those of neighbouring symbols do, cost
// one read. It serves one goroutine. A name that cannot be read is nil, and the
// first reason is kept: one bad name must not cost all others.
type stringTable struct {
	e         *ELF
	off, size uint64 // of the table in the file
	window    []byte
	start     uint64 // of the window in the table
	err       error
}

// strings returns the size bytes at off in the file as a string table; what
// lies beyond the end of the file is left out.
func (e *ELF) strings(off, size uint64) *stringTable {
	t := &stringTable{e: e, off: off}
	if off < uint64(e.size) {
		t.size = min(size, uint64(e.size)-off)
	}
	return t
}

// at returns the string at offset i of the table, cut at maxName bytes. It is
// valid until the next call.
func (t *stringTable) at(i uint64) []byte {
	if i >= t.size {
		return t.fail(t.e.errorf(int64(t.off), "name lies outside of its string table"))
	}
	if i >= t.start && i-t.start < uint64(len(t.window)) {
		rest := t.window[i-t.start:]
		if end := bytes.IndexByte(rest, 0); end >= 0 {
			return rest[:end]
		}
	}
	n := min(maxName, t.size-i)
	t.window = append(t.window[:0], make([]byte, n)...)
	t.start = i
	if err := t.e.readAt(t.window, int64(t.off+i), "string table"); err != nil {
		t.window = t.window[:0]
		return t.fail(err)
	}
	if end := bytes.IndexByte(t.window, 0); end >= 0 {
		return t.window[:end]
	}
	return t.window
}

func (t *stringTable) fail(err error) []byte {
	if t.err == nil {
		t.err = err
	}
	return nil
}
