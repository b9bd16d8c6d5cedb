package elffile

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
)

// maxPath bounds the paths that links to other files hold, in bytes.
const maxPath = 4096

// DebugLink names the separate file with a binary's debug info.
type DebugLink struct {
	// Name is a file name without a directory.
	Name string
	// CRC is the CRC-32 (IEEE) of that file.
	CRC uint32
}

// DebugLink returns the contents of .gnu_debuglink: a name, padded to four
// bytes, and a checksum (GDB's manual, "Separate Debug Files"). It is nil if
// there is none.
func (f *File) DebugLink() (*DebugLink, error) {
	s := f.Section(".gnu_debuglink")
	if s == nil {
		return nil, nil
	}
	b, err := s.bytes(maxPath + 8)
	if err != nil {
		return nil, err
	}
	name, _, ok := bytes.Cut(b, []byte{0})
	crc := (len(name) + 1 + 3) &^ 3
	if !ok || len(name) == 0 || len(b) < crc+4 {
		return nil, s.errorf("malformed .gnu_debuglink")
	}
	return &DebugLink{Name: string(name), CRC: binary.LittleEndian.Uint32(b[crc:])}, nil
}

// AltLink names the file that dwz moved debug info to which several files
// share.
type AltLink struct {
	// Path is absolute, or relative to the directory of the file that has
	// the link.
	Path string
	// BuildID is that of the file at Path, in lower-case hex.
	BuildID string
}

// AltLink returns the contents of .gnu_debugaltlink: a path and a build ID
// (dwz(1)). It is nil if there is none.
func (f *File) AltLink() (*AltLink, error) {
	s := f.Section(".gnu_debugaltlink")
	if s == nil {
		return nil, nil
	}
	b, err := s.bytes(maxPath + 1 + maxBuildID)
	if err != nil {
		return nil, err
	}
	path, id, ok := bytes.Cut(b, []byte{0})
	if !ok || len(path) == 0 || len(id) == 0 || len(id) > maxBuildID {
		return nil, s.errorf("malformed .gnu_debugaltlink")
	}
	return &AltLink{Path: string(path), BuildID: hex.EncodeToString(id)}, nil
}

// bytes returns the contents of a section that has at most limit bytes, or its
// first limit bytes.
func (s *Section) bytes(limit int64) ([]byte, error) {
	data, err := s.Open()
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(data.Size(), limit))
	if n, err := data.ReadAt(b, 0); n < len(b) {
		return nil, s.errorf("reading %s: %v", s.Name, err)
	}
	return b, nil
}
