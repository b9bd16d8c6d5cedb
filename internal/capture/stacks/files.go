package stacks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"fulgur/bpf"
)

// File is a file that the kernel side met.
type File struct {
	// Major and Minor are those of its file system's device.
	Major, Minor uint32
	Inode        uint64
	// Path is its path in that file system, empty where the kernel knows none.
	Path string
	// Device says that it is a block device itself, whose numbers these are.
	Device bool
}

// Sizes of struct file_record, bpf/file.h.
const (
	fileHeader = 32
	fileName   = 64
)

// AddFile keeps the file in a file record.
func (s *Store) AddFile(record []byte) error {
	if len(record) < fileHeader {
		return fmt.Errorf("%w: file of %d bytes", ErrRecord, len(record))
	}
	native := binary.NativeEndian
	elements, names := int(native.Uint32(record[4:])), record[fileHeader:]
	if elements > len(names)/fileName {
		return fmt.Errorf("%w: path of %d elements in %d bytes", ErrRecord, elements, len(record))
	}
	file := File{Inode: native.Uint64(record[16:])}
	device, end := native.Uint32(record[24:]), bpf.PathEnd(native.Uint32(record[28:]))
	file.Major, file.Minor = device>>20, device&(1<<20-1)
	file.Device = end == bpf.PathDevice
	var path []string
	for i := range elements {
		name, _, _ := bytes.Cut(names[i*fileName:(i+1)*fileName], []byte{0})
		path = append(path, string(name))
	}
	if end == bpf.PathCut {
		path = append(path, "…")
	}
	if elements > 0 {
		path = append(path, "") // for the first slash
		slices.Reverse(path)
		file.Path = strings.Join(path, "/")
	}
	s.Files[native.Uint64(record[8:])] = file
	return nil
}
