package stacks

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/linux/ringbuf"
)

// File is a file from the kernel side.
type File struct {
	// Major and Minor are the device number of its file system.
	Major, Minor uint32
	Inode        uint64
	// Path is its path in that file system, "" if the kernel knows none.
	Path string
	// Device means that the file is a block device with this device number.
	Device bool
}

// AddFile adds the file of a file record.
func (s *Store) AddFile(record []byte) error {
	const head = unsafe.Offsetof(bpf.FileRecord{}.Names)
	r, err := ringbuf.As[bpf.FileRecord](record, head)
	if err != nil {
		return err
	}
	names := r.Names[:min(len(r.Names), (len(record)-int(head))/len(r.Names[0]))]
	if int(r.Elements) > len(names) {
		return fmt.Errorf("%w: path of %d elements in %d bytes", ringbuf.ErrRecord, r.Elements, len(record))
	}
	end := bpf.PathEnd(r.End)
	file := File{Major: r.Device >> 20, Minor: r.Device & (1<<20 - 1), Inode: r.Inode, Device: end == bpf.PathDevice}
	var path []string
	for i := range names[:r.Elements] {
		path = append(path, unix.ByteSliceToString(names[i][:]))
	}
	if end == bpf.PathCut {
		path = append(path, "…")
	}
	if r.Elements > 0 {
		path = append(path, "") // adds the leading slash
		slices.Reverse(path)
		file.Path = strings.Join(path, "/")
	}
	s.Files[r.Id] = file
	return nil
}
