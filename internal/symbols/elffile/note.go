package elffile

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// Limits on notes. Only core files have long notes.
const (
	maxNotes   = 64 << 10
	maxBuildID = 64
	maxGoID    = 256
)

// IDs identify a build of a file.
type IDs struct {
	// GNU is the GNU build ID in lowercase hex, and Go the build ID of the Go linker; "" if the file
	// has no readable one.
	GNU, Go string
}

// IDs returns the build IDs in the file's notes.
func (f *File) IDs() IDs { return f.ids() }

// BuildID returns the GNU build ID in lowercase hex, or "" if the file has no readable one.
func (f *File) BuildID() string { return f.ids().GNU }

// SameBuildID reports whether a build ID recorded by perf belongs to a file: perf
// truncates long ones to 20 bytes and pads short ones.
func SameBuildID(recorded, id string) bool {
	n := min(len(recorded), len(id))
	return recorded[:n] == id[:n] && strings.Trim(recorded[n:], "0") == ""
}

// findIDs looks for build IDs in the note segments and, if there is no GNU build ID, in the note
// sections. A separate debug file has only the latter.
func (f *File) findIDs() (ids IDs) {
	for _, s := range f.segments {
		if s.Type == elf.PT_NOTE {
			f.noteIDs(&ids, s.Offset, s.FileSize, s.Align)
		}
	}
	if ids.GNU != "" {
		return ids
	}
	sections, err := f.Sections()
	if err != nil {
		return ids
	}
	for _, s := range sections {
		if s.Type == elf.SHT_NOTE {
			f.noteIDs(&ids, s.Offset, s.Size, s.Align)
		}
	}
	return ids
}

// noteIDs looks for build IDs in size bytes of notes at off. It returns no error, because symbols
// are useful without a build ID.
func (f *File) noteIDs(ids *IDs, off, size, align uint64) {
	if size > maxNotes {
		return
	}
	if notes, err := f.Bytes(int64(off), size, "notes"); err == nil {
		ids.read(notes, align)
	}
}

// NoteBuildID returns the GNU build ID in a sequence of ELF notes in lowercase hex, or ""
// if there is none. The parts of a note are aligned to align bytes: 8, or else 4. The
// notes may come from a file, or from /sys for the kernel and its modules.
func NoteBuildID(notes []byte, align uint64) string {
	var ids IDs
	ids.read(notes, align)
	return ids.GNU
}

// read sets the IDs that are in a sequence of ELF notes and are not known yet.
func (ids *IDs) read(notes []byte, align uint64) {
	const headerSize, ntGNUBuildID, ntGoBuildID = 12, 3, 4 // the last one: cmd/link's ELF_NOTE_GOBUILDID_TAG
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
			return
		}
		name := string(notes[headerSize : headerSize+namesz])
		switch {
		case ids.GNU == "" && typ == ntGNUBuildID && name == "GNU\x00" && descsz <= maxBuildID:
			ids.GNU = hex.EncodeToString(notes[desc : desc+descsz])
		case ids.Go == "" && typ == ntGoBuildID && name == "Go\x00\x00" && descsz <= maxGoID:
			ids.Go = string(notes[desc : desc+descsz])
		}
		notes = notes[min(round(desc+descsz), uint64(len(notes))):]
	}
}

// Hash returns a hash of the file's size and of its first and last 4096 bytes, in lowercase hex:
// OpenTelemetry's process.executable.build_id.htlhash,
// https://opentelemetry.io/docs/specs/otel/profiles/mappings/. It is "" if the file cannot be read.
func (f *File) Hash() string { return f.hash() }

func (f *File) sumUp() string {
	const part = 4096
	n := min(f.size, part)
	b := make([]byte, 2*n, 2*n+8)
	for i, off := range []int64{0, f.size - n} {
		if got, _ := f.r.ReadAt(b[int64(i)*n:int64(i+1)*n], off); int64(got) < n {
			return ""
		}
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(b, uint64(f.size)))
	return hex.EncodeToString(sum[:16])
}
