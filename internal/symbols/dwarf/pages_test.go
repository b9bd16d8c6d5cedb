package dwarf

import (
	"errors"
	"testing"
)

// unreadable is a section that cannot be read.
type unreadable struct{ err error }

func (unreadable) Size() int64                         { return 8 }
func (u unreadable) ReadAt([]byte, int64) (int, error) { return 0, u.err }

// An error in reading a section names the file once.
func TestReadError(t *testing.T) {
	for message, want := range map[string]string{
		"disk failed":                    "/lib/a.so: .debug_info: read 4 bytes at offset 0x2: disk failed",
		"/lib/a.so: decompressing: full": "/lib/a.so: decompressing: full",
	} {
		p := newPages(unreadable{errors.New(message)}, "/lib/a.so", ".debug_info")
		if err := p.read(make([]byte, 4), 2); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}
