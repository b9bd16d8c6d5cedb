package elffile

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
)

// Limits on notes. Only core files have long notes.
const (
	maxNotes   = 64 << 10
	maxBuildID = 64
)

// BuildID returns the GNU build ID in lowercase hex, or "" if the file has no readable one.
func (f *File) BuildID() string { return f.buildID() }

// findBuildID looks for the build ID in the note segments, and then in the note sections. A
// separate debug file has only the latter.
func (f *File) findBuildID() string {
	for _, s := range f.segments {
		if s.Type == elf.PT_NOTE {
			if id := f.noteBuildID(s.Offset, s.FileSize, s.Align); id != "" {
				return id
			}
		}
	}
	sections, err := f.Sections()
	if err != nil {
		return ""
	}
	for _, s := range sections {
		if s.Type == elf.SHT_NOTE {
			if id := f.noteBuildID(s.Offset, s.Size, s.Align); id != "" {
				return id
			}
		}
	}
	return ""
}

// noteBuildID looks for the build ID in size bytes of notes at off. It returns no error,
// because symbols are useful without a build ID.
func (f *File) noteBuildID(off, size, align uint64) string {
	if size > maxNotes {
		return ""
	}
	notes, err := f.Bytes(int64(off), size, "notes")
	if err != nil {
		return ""
	}
	return NoteBuildID(notes, align)
}

// NoteBuildID returns the GNU build ID in a sequence of ELF notes in lowercase hex, or ""
// if there is none. The parts of a note are aligned to align bytes: 8, or else 4. The
// notes may come from a file, or from /sys for the kernel and its modules.
func NoteBuildID(notes []byte, align uint64) string {
	const headerSize, ntGNUBuildID = 12, 3
	if align != 8 {
		align = 4
	}
	round := func(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }
	for len(notes) >= headerSize {
		namesz := uint64(binary.LittleEndian.Uint32(notes))
		descsz := uint64(binary.LittleEndian.Uint32(notes[4:]))
		typ := binary.LittleEndian.Uint32(notes[8:])
		desc := round(headerSize + namesz)
		if desc+descsz > uint64(len(notes)) {
			return ""
		}
		name := notes[headerSize : headerSize+namesz]
		if typ == ntGNUBuildID && string(name) == "GNU\x00" && descsz <= maxBuildID {
			return hex.EncodeToString(notes[desc : desc+descsz])
		}
		notes = notes[min(round(desc+descsz), uint64(len(notes))):]
	}
	return ""
}
