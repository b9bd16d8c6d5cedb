package stacks

import (
	"testing"
	"unsafe"

	"fulgur/bpf"
)

// ParseSnapshot refuses a record that is too short, or shorter than its size field.
func TestParseSnapshotRefuses(t *testing.T) {
	for _, b := range [][]byte{nil, make([]byte, snapshotCopy-1), func() []byte {
		b := make([]byte, unsafe.Sizeof(bpf.Snapshot{}))
		for i := range b {
			b[i] = 0xff
		}
		return b
	}()} {
		if _, err := ParseSnapshot(b); err == nil {
			t.Errorf("got no error for %d bytes", len(b))
		}
	}
}
