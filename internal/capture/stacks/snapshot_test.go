package stacks

import (
	"bytes"
	"testing"
	"unsafe"

	"fulgur/internal/bpf"
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
		if _, err := ParseSnapshot(b, Snapshot{}); err == nil {
			t.Errorf("got no error for %d bytes", len(b))
		}
	}
}

// A snapshot is handed back as it was, in a record that held another one, and in the memory of
// a snapshot that is no longer needed.
func TestSnapshotAgain(t *testing.T) {
	record := func(pid uint32, copied int) []byte {
		r := new(bpf.Snapshot)
		r.Image, r.Copied = 7, uint32(copied)
		head := (*bpf.StackRecord)(unsafe.Pointer(&r.Record))
		head.Pid, head.Time = pid, 11
		b := unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r))
		for i := range copied {
			b[int(snapshotCopy)+i] = byte(pid)
		}
		return b[:int(snapshotCopy)+copied]
	}
	var last Snapshot
	back := new(bpf.Snapshot)
	for _, want := range []struct {
		pid    uint32
		copied int
	}{{1, 512}, {2, 8}, {3, 1024}, {4, 0}} {
		r := record(want.pid, want.copied)
		sent := bytes.Clone(r)
		got, err := ParseSnapshot(r, last)
		if err != nil {
			t.Fatal(err)
		}
		clear(r) // the ring's memory is used again
		if got.PID != int(want.pid) || got.Image != 7 || got.Time != 11 || got.Size() != len(sent) {
			t.Errorf("got process %d, image %d, time %d, %d bytes, want %d, 7, 11, %d", got.PID, got.Image, got.Time, got.Size(), want.pid, len(sent))
		}
		got.Fill(back, 42)
		b := bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(back)), unsafe.Sizeof(*back))[:len(sent)])
		layout := b[unsafe.Offsetof(back.Layout):][:8]
		if back.Layout != 42 {
			t.Errorf("got layout %d, want 42", back.Layout)
		}
		clear(layout)
		if !bytes.Equal(b, sent) {
			t.Errorf("process %d: got another record back", want.pid)
		}
		last = got
	}
}
