package elffile

import (
	"bytes"
	"debug/elf"
)

// maxString bounds names, in bytes. Longer names, which occur only with excessive
// templates and in crafted files, are truncated.
const maxString = 8 << 10

// StringTable reads names from a table of NUL-terminated strings through a window, so that
// adjacent names, for example of neighboring symbols, cost one read. An unreadable name is
// nil and does not affect other names; [StringTable.Err] returns the first error. A
// StringTable is not safe for concurrent use.
type StringTable struct {
	f         *File
	off, size uint64 // of the table, in the file
	window    []byte
	start     uint64 // of the window, in the table
	err       error
}

// Strings returns the string table of size bytes at file offset off. The part beyond the
// end of the file is ignored.
func (f *File) Strings(off, size uint64) *StringTable {
	t := &StringTable{f: f, off: off}
	if off < uint64(f.size) {
		t.size = min(size, uint64(f.size)-off)
	}
	return t
}

// stringsAt returns the string table in s.
func (f *File) stringsAt(s *Section) *StringTable {
	if s.Type == elf.SHT_NOBITS {
		return f.Strings(s.Offset, 0)
	}
	return f.Strings(s.Offset, s.Size)
}

// At returns the string at offset i of the table, truncated to 8 KiB. It is valid until
// the next call.
func (t *StringTable) At(i uint64) []byte {
	if i >= t.size {
		return t.fail(t.f.Errorf(int64(t.off), "name lies outside of its string table"))
	}
	if i >= t.start && i-t.start < uint64(len(t.window)) {
		rest := t.window[i-t.start:]
		if text, _, ok := bytes.Cut(rest, []byte{0}); ok {
			return text
		}
	}
	n := min(maxString, t.size-i)
	t.window = append(t.window[:0], make([]byte, n)...)
	t.start = i
	if err := t.f.ReadFull(t.window, int64(t.off+i), "string table"); err != nil {
		t.window = t.window[:0]
		return t.fail(err)
	}
	if end := bytes.IndexByte(t.window, 0); end >= 0 {
		return t.window[:end]
	}
	return t.window
}

// Err returns the error of the first unreadable name, or nil.
func (t *StringTable) Err() error { return t.err }

func (t *StringTable) fail(err error) []byte {
	if t.err == nil {
		t.err = err
	}
	return nil
}
