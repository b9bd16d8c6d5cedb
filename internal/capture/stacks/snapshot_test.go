package stacks

import (
	"testing"
	"unsafe"

	"fulgur/bpf"
)

// A record that is too short, or that says of itself that it is longer, is refused.
func TestParseSnapshotRefuses(t *testing.T) {
	for _, b := range [][]byte{nil, make([]byte, snapshotCopy-1), func() []byte {
		b := make([]byte, unsafe.Sizeof(bpf.Snapshot{}))
		for i := range b {
			b[i] = 0xff
		}
		return b
	}()} {
		if _, err := ParseSnapshot(b); err == nil {
			t.Errorf("no error for %d bytes", len(b))
		}
	}
}
