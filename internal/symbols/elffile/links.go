package elffile

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
)

// maxPath bounds the paths in links to other files, in bytes.
const maxPath = 4096

// DebugLink refers to the separate file with a binary's debug info.
type DebugLink struct {
	// Name is a file name without a directory.
	Name string
	// CRC is the file's CRC-32 (IEEE).
	CRC uint32
}

// DebugLink returns the contents of .gnu_debuglink: a name, padded to four bytes, and a
// checksum (GDB's manual, "Separate Debug Files"). It returns nil if there is none.
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

// AltLink refers to the file to which dwz moved debug info shared by several files.
type AltLink struct {
	// Path is absolute, or relative to the directory of the file with the link.
	Path string
	// ID is the [File.AltID] of the file at Path.
	ID string
}

// AltLink returns the link to shared debug info: the contents of .gnu_debugaltlink, a
// path and a build ID (dwz(1)), or of .debug_sup (DWARF 5, 7.3.6). It returns nil if
// there is neither.
func (f *File) AltLink() (*AltLink, error) {
	if s := f.Section(".gnu_debugaltlink"); s != nil {
		b, err := s.bytes(maxPath + 1 + maxBuildID)
		if err != nil {
			return nil, err
		}
		path, id, ok := bytes.Cut(b, []byte{0})
		if !ok || len(path) == 0 || len(id) == 0 || len(id) > maxBuildID {
			return nil, s.errorf("malformed .gnu_debugaltlink")
		}
		return &AltLink{Path: string(path), ID: hex.EncodeToString(id)}, nil
	}
	path, id, shared, err := f.debugSup()
	if err != nil || shared || id == "" {
		return nil, err
	}
	return &AltLink{Path: path, ID: id}, nil
}

// AltID returns the ID used for this file in an [AltLink], in lowercase hex: the checksum
// in .debug_sup if the file has shared debug info and a checksum, otherwise its build ID.
func (f *File) AltID() string {
	if _, id, shared, err := f.debugSup(); err == nil && shared {
		return id
	}
	return f.BuildID()
}

// debugSup reads .debug_sup: a version, whether this file is the shared one, the shared
// file's path, and the length and bytes of its checksum. id is empty if there is no
// checksum.
func (f *File) debugSup() (path, id string, shared bool, err error) {
	const version = 5
	s := f.Section(".debug_sup")
	if s == nil {
		return "", "", false, nil
	}
	b, err := s.bytes(3 + maxPath + 1 + binary.MaxVarintLen64 + maxBuildID)
	if err != nil {
		return "", "", false, err
	}
	if len(b) < 3 || binary.LittleEndian.Uint16(b) != version || b[2] > 1 {
		return "", "", false, s.errorf("malformed .debug_sup")
	}
	shared = b[2] == 1
	name, rest, _ := bytes.Cut(b[3:], []byte{0})
	size, n := binary.Uvarint(rest)
	if n <= 0 || size == 0 || size > maxBuildID || size > uint64(len(rest)-n) || shared != (len(name) == 0) {
		return "", "", false, s.errorf("malformed .debug_sup")
	}
	return string(name), hex.EncodeToString(rest[n:][:size]), shared, nil
}

// bytes returns the contents of a section, up to limit bytes. A larger compressed section
// is an error: links are small, and it would have to be decompressed completely.
func (s *Section) bytes(limit int64) ([]byte, error) {
	stored, err := s.stored()
	if err != nil {
		return nil, err
	}
	if stored.by != plain && stored.size > uint64(limit) {
		return nil, s.errorf("section %s claims to be %d bytes decompressed", s.Name, stored.size)
	}
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
