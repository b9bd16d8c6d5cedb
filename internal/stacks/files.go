package stacks

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// File is a file that the kernel side met.
type File struct {
	// Major and Minor are those of its file system's device.
	Major, Minor uint32
	Inode        uint64
	// Path is its path in that file system.
	Path string
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
	var path []string
	for i := range elements {
		name, _, _ := bytes.Cut(names[i*fileName:(i+1)*fileName], []byte{0})
		path = append(path, string(name))
	}
	if native.Uint32(record[28:]) != 0 {
		path = append(path, "…")
	}
	path = append(path, "") // for the first slash
	slices.Reverse(path)
	device := native.Uint32(record[24:])
	s.Files[native.Uint64(record[8:])] = File{
		Major: device >> 20, Minor: device & (1<<20 - 1),
		Inode: native.Uint64(record[16:]),
		Path:  strings.Join(path, "/"),
	}
	return nil
}
