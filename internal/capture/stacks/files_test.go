package stacks

import (
	"encoding/binary"
	"errors"
	"testing"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/ringbuf"
)

// fileRecord returns a record from the kernel side, with the elements of a path, last
// element first.
func fileRecord(id, inode uint64, device uint32, end bpf.PathEnd, names ...string) []byte {
	native := binary.NativeEndian
	b := native.AppendUint32(nil, uint32(bpf.RecordFile))
	b = native.AppendUint32(b, uint32(len(names)))
	b = native.AppendUint64(b, id)
	b = native.AppendUint64(b, inode)
	b = native.AppendUint32(b, device)
	b = native.AppendUint32(b, uint32(end))
	for _, name := range names {
		element := make([]byte, len(bpf.FileRecord{}.Names[0]))
		copy(element, name)
		b = append(b, element...)
	}
	return b
}

func TestAddFile(t *testing.T) {
	const device = 8<<20 | 1
	for name, test := range map[string]struct {
		record []byte
		want   File
	}{
		"path":          {fileRecord(1, 7, device, bpf.PathWhole, "b", "a"), File{Major: 8, Minor: 1, Inode: 7, Path: "/a/b"}},
		"cut path":      {fileRecord(1, 7, device, bpf.PathCut, "b", "a"), File{Major: 8, Minor: 1, Inode: 7, Path: "/…/a/b"}},
		"no path":       {fileRecord(1, 7, device, bpf.PathWhole), File{Major: 8, Minor: 1, Inode: 7}},
		"block device":  {fileRecord(1, 9, device, bpf.PathDevice), File{Major: 8, Minor: 1, Inode: 9, Device: true}},
		"not in a tree": {fileRecord(1, 7, 1, bpf.PathWhole, "memfd:x"), File{Minor: 1, Inode: 7, Path: "/memfd:x"}},
	} {
		s := NewStore(fixed{})
		if err := s.AddFile(test.record); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := s.Files[1]; got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

func TestAddMalformedFile(t *testing.T) {
	whole := fileRecord(1, 7, 1, bpf.PathWhole, "b", "a")
	for _, size := range []int{0, 31, 32, len(whole) - 1} {
		if err := NewStore(fixed{}).AddFile(whole[:size]); !errors.Is(err, ringbuf.ErrRecord) {
			t.Errorf("%d bytes: got %v, want %v", size, err, ringbuf.ErrRecord)
		}
	}
}

func FuzzAddFile(f *testing.F) {
	f.Add(fileRecord(1, 7, 8<<20, bpf.PathCut, "b", "a"))
	f.Fuzz(func(t *testing.T, record []byte) {
		if err := NewStore(fixed{}).AddFile(record); err != nil && !errors.Is(err, ringbuf.ErrRecord) {
			t.Fatalf("got an error that is not ErrRecord: %v", err)
		}
	})
}
