package callframe

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"fulgur/internal/symbols/dwarfdata"
	"fulgur/internal/symbols/elffile"
)

const (
	// ChunkSize is the number of bytes of a section in a [Chunk], unless an entry is larger.
	ChunkSize = 256 << 10
	// maxEntry limits the size of an FDE in bytes. The longest programs of real functions
	// have about ten thousand bytes.
	maxEntry = 1 << 20
	// MaxSize limits the size of a section in bytes. The largest browsers have a tenth of it.
	// A larger section is hostile: a file with holes can be large at no cost.
	MaxSize = 256 << 20
)

// Section is a section with call frame information. It is safe for concurrent use.
type Section struct {
	// Size is the size of the section in bytes.
	Size uint64
	// AddrSize is the size of an address in bytes, unless a CIE specifies another size.
	AddrSize uint8
	// EH is true for .eh_frame and false for .debug_frame.
	EH bool

	r    io.ReaderAt
	file *elffile.File
	name string
	// addr is the section's link-time virtual address. data is the base of its
	// data-relative pointers.
	addr, data uint64
}

// Errorf returns an error about the entry at offset off.
func (s *Section) Errorf(off uint64, format string, args ...any) error {
	return fmt.Errorf("%s: %s at offset %#x: %s", s.file.Name(), s.name, off, fmt.Sprintf(format, args...))
}

// File returns the file that has the section.
func (s *Section) File() *elffile.File { return s.file }

// Name returns the section's name.
func (s *Section) Name() string { return s.name }

// OpenDebug returns the .debug_frame of f, or nil if f has none or it is empty. It fails if
// the section is larger than [MaxSize].
func OpenDebug(f *elffile.File) (*Section, error) { return openSection(f, ".debug_frame") }

func openSection(f *elffile.File, name string) (*Section, error) {
	sec := f.Section(name)
	if sec == nil {
		return nil, nil
	}
	data, err := sec.Lazy()
	if errors.Is(err, elffile.ErrNoContents) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read unwind information: %w", err)
	}
	if data.Size() > MaxSize {
		return nil, fmt.Errorf("%s: %d bytes of %s are more than any program has", f.Name(), data.Size(), name)
	}
	s := &Section{
		r: data, Size: uint64(data.Size()), file: f, name: name, addr: sec.Addr,
		EH: name == ".eh_frame", AddrSize: uint8(f.WordSize()),
	}
	if got := f.Section(".got"); got != nil {
		s.data = got.Addr
	}
	return s, nil
}

// OpenEH returns the .eh_frame of f, or nil if f has none or it is empty. In a file without
// section headers, it uses the program header, as exceptions do. It fails if the section is
// larger than [MaxSize].
func OpenEH(f *elffile.File) (*Section, error) {
	s, err := openSection(f, ".eh_frame")
	if s != nil || err != nil {
		return s, err
	}
	if sections, err := f.Sections(); err == nil && len(sections) > 0 {
		return nil, nil
	}
	h, err := openHeader(f)
	if h == nil || err != nil {
		return nil, err
	}
	for _, load := range f.Segments() {
		if load.Type == elf.PT_LOAD && h.frames-load.Addr < load.FileSize {
			off := load.Offset + h.frames - load.Addr
			// The header does not contain the section's end.
			size := min(load.FileSize-(h.frames-load.Addr), uint64(max(f.Size()-int64(off), 0)), MaxSize)
			return &Section{
				r: io.NewSectionReader(f.Reader(), int64(off), int64(size)), Size: size,
				file: f, name: ".eh_frame", addr: h.frames, EH: true, AddrSize: uint8(f.WordSize()),
			}, nil
		}
	}
	return nil, f.Errorf(int64(h.segment.Offset), ".eh_frame_hdr points to %#x, which is not in the file", h.frames)
}

// Entry is a CIE or an FDE.
type Entry struct {
	// Off is the entry's offset in the section.
	Off uint64
	// IsCIE distinguishes a CIE from an FDE.
	IsCIE bool
	// body is the offset after the length; in .eh_frame the pointer to the CIE is
	// relative to it.
	body uint64
	id   uint64 // in an FDE, the pointer to its CIE
	buf  dwarfdata.Reader
	// base is the address of the first byte of buf, which follow the ID.
	base uint64
}

// header parses the length of the entry at the start of b. It returns the size of the
// length field and the number of bytes after it. ok is false if b is too short.
func header(b []byte) (lengthSize, length uint64, ok bool) {
	r := dwarfdata.Reader{Data: b}
	length = r.Word(4)
	lengthSize = 4
	if length == 0xffffffff {
		length = r.Word(8)
		lengthSize = 12
	}
	return lengthSize, length, !r.Bad
}

// entry parses the entry at offset off of the section. b is the whole section.
func (s *Section) entry(b []byte, off uint64) (Entry, bool) {
	lengthSize, length, ok := header(b)
	if !ok || length > uint64(len(b))-lengthSize {
		return Entry{}, false
	}
	return s.entryBody(b[lengthSize:lengthSize+length], off, lengthSize)
}

// entryBody parses the entry at offset off after its length, or its first bytes.
func (s *Section) entryBody(b []byte, off, lengthSize uint64) (Entry, bool) {
	e := Entry{Off: off, body: off + lengthSize}
	idSize := uint8(4)
	r := dwarfdata.Reader{Data: b}
	if lengthSize == 12 && !s.EH {
		idSize = 8
	}
	e.id = r.Word(idSize)
	switch {
	case s.EH:
		e.IsCIE = e.id == 0
	case idSize == 4:
		e.IsCIE = e.id == 0xffffffff
	default:
		e.IsCIE = e.id == 1<<64-1
	}
	e.buf = dwarfdata.Reader{Data: r.Data[r.Pos:]}
	e.base = s.addr + e.body + uint64(idSize)
	return e, !r.Bad
}

// CIE returns the offset of an FDE's CIE.
func (s *Section) CIE(e *Entry) uint64 {
	if s.EH {
		return e.body - e.id
	}
	return e.id
}

// Chunk is a run of whole entries of a section.
type Chunk struct {
	// Off is the chunk's offset in the section, and Data its bytes.
	Off  uint64
	Data []byte
	// Damage means that the boundaries of entries are lost here. Data is then empty.
	Damage error
}

// Chunks reads the section and calls yield with each chunk in order, until yield fails.
// yield may keep a chunk's Data.
func (s *Section) Chunks(yield func(Chunk) error) error {
	for off := uint64(0); off < s.Size; {
		data := make([]byte, min(ChunkSize, s.Size-off))
		if err := s.fill(data, off); err != nil {
			return err
		}
		n, next := wholeEntries(data)
		if n == 0 && next <= maxEntry && next <= s.Size-off {
			data = make([]byte, next)
			if err := s.fill(data, off); err != nil {
				return err
			}
			n = int(next)
		}
		c := Chunk{Off: off, Data: data[:n]}
		if n == 0 {
			// Too long to be real, or beyond the section's end.
			c.Damage = s.Errorf(off, "entry of %d bytes", next)
			if next > s.Size-off {
				next = s.Size - off
			}
			n = int(next)
		}
		if err := yield(c); err != nil {
			return err
		}
		off += uint64(n)
	}
	return nil
}

func (s *Section) fill(data []byte, off uint64) error {
	n, err := s.r.ReadAt(data, int64(off))
	if n == len(data) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: read %s at offset %#x: %w", s.file.Name(), s.name, off, err)
}

// wholeEntries returns the number of bytes of the whole entries at the start of data. If
// there are none, first is the number of bytes that the first entry needs.
func wholeEntries(data []byte) (n int, first uint64) {
	for {
		lengthSize, length, ok := header(data[n:])
		if !ok {
			return n, uint64(len(data)) + 1 // the section ends in it
		}
		if length > uint64(len(data)-n)-lengthSize {
			if length += lengthSize; length < lengthSize {
				length = 1<<64 - 1
			}
			return n, length
		}
		n += int(lengthSize + length)
	}
}

// Entries calls yield with each entry of a chunk, or with an error for an entry that cannot
// be read. The entry is valid until yield returns.
func (s *Section) Entries(c Chunk, yield func(*Entry, error)) {
	var e Entry
	for pos := uint64(0); pos < uint64(len(c.Data)); {
		lengthSize, length, _ := header(c.Data[pos:])
		whole := c.Data[pos:][:lengthSize+length]
		off := c.Off + pos
		pos += uint64(len(whole))
		if length == 0 {
			continue // a terminator between the linked tables
		}
		var ok bool
		if e, ok = s.entry(whole, off); ok {
			yield(&e, nil)
		} else {
			yield(nil, s.Errorf(off, "entry without an ID"))
		}
	}
}
