package callframe

import (
	"bytes"

	"fulgur/internal/symbols/dwarfdata"
)

// CIE is the common part of FDEs.
type CIE struct {
	// CodeAlign and DataAlign are the factors of advances and offsets in programs.
	CodeAlign uint64
	DataAlign int64
	// RA is the register column of the return address.
	RA uint64
	// Enc is the encoding of the addresses in FDEs, and AddrSize their size in bytes if
	// they are not encoded.
	Enc, AddrSize uint8
	// Signal is set if the functions are signal trampolines.
	Signal bool
	// Program is the rest of the CIE.
	Program Program
	// Err is the reason why FDEs with this CIE cannot be read, or nil. If it is set, the
	// fields above are incomplete.
	Err error

	augmented bool // FDEs have augmentation data too
}

// Program is a call frame program, which begins at a link-time virtual address.
type Program struct {
	Data []byte
	Addr uint64
}

// maxCIE limits the size of a CIE in bytes. A real CIE has about twenty. In a hostile file,
// CIEs may overlap, and every FDE may have its own.
const maxCIE = 4 << 10

// ReadCIE reads the CIE at offset off.
func (s *Section) ReadCIE(off uint64) *CIE {
	c := &CIE{}
	if off >= s.Size {
		c.Err = s.Errorf(off, "no CIE there")
		return c
	}
	b := make([]byte, 12)
	n, _ := s.r.ReadAt(b, int64(off))
	lengthSize, length, ok := header(b[:n])
	if !ok || length > maxCIE {
		c.Err = s.Errorf(off, "no CIE there")
		return c
	}
	b = make([]byte, lengthSize+length)
	n, _ = s.r.ReadAt(b, int64(off))
	e, ok := s.entry(b[:n], off)
	if !ok || !e.IsCIE {
		c.Err = s.Errorf(off, "no CIE there")
		return c
	}
	c.parse(s, &e)
	return c
}

// parse reads a CIE's fields.
func (c *CIE) parse(s *Section, e *Entry) {
	r := &e.buf
	version := r.U8()
	augmentation := r.CString()
	if version == 0 || version == 2 || version > 4 {
		c.Err = s.Errorf(e.Off, "CIE of unknown version %d", version)
		return
	}
	c.AddrSize = s.AddrSize
	if version == 4 {
		c.AddrSize = r.U8()
		if segment := r.U8(); segment != 0 || c.AddrSize != 4 && c.AddrSize != 8 {
			c.Err = s.Errorf(e.Off, "CIE with addresses of %d and segments of %d bytes", c.AddrSize, segment)
			return
		}
	}
	if bytes.Equal(augmentation, []byte("eh")) {
		r.Take(uint64(c.AddrSize)) // from g++ 2
		augmentation = nil
	}
	c.CodeAlign = r.ULEB()
	c.DataAlign = r.SLEB()
	if version == 1 {
		c.RA = uint64(r.U8())
	} else {
		c.RA = r.ULEB()
	}
	if !c.augment(r, augmentation) {
		c.Err = s.Errorf(e.Off, "CIE with unknown augmentation %q", augmentation)
		return
	}
	if r.Bad {
		c.Err = s.Errorf(e.Off, "CIE ends too early")
		return
	}
	c.Program = Program{r.Data[r.Pos:], e.base + uint64(r.Pos)}
}

// augment reads the augmentation data, which has a length only with 'z'.
func (c *CIE) augment(r *dwarfdata.Reader, augmentation []byte) bool {
	if len(augmentation) == 0 {
		return true
	}
	if augmentation[0] != 'z' {
		return false
	}
	c.augmented = true
	data := dwarfdata.Reader{Data: r.Block()}
	for _, letter := range augmentation[1:] {
		switch letter {
		case 'R':
			c.Enc = data.U8()
		case 'P':
			readEncoded(&data, data.U8(), c.AddrSize) // the personality routine
		case 'L':
			data.U8() // how FDEs point to exception tables
		case 'S':
			c.Signal = true
		case 'B', 'G':
			// arm64: signed with the B key, or tagged memory.
		default:
			return !data.Bad // the length determines where the program begins
		}
	}
	return !data.Bad
}

// FDE is the description of a function.
type FDE struct {
	// Start is the function's link-time virtual address, and Size its size in bytes. They are
	// 0 for a function that the linker dropped.
	Start, Size uint64
	Program     Program
}

// FDE parses an FDE whose CIE is c.
func (s *Section) FDE(e *Entry, c *CIE) (FDE, error) {
	if c.Err != nil {
		return FDE{}, c.Err
	}
	f, r := s.fdeRange(e, c)
	if c.augmented {
		r.Block()
	}
	if r.Bad {
		return FDE{}, s.Errorf(e.Off, "FDE ends too early")
	}
	f.Program = Program{r.Data[r.Pos:], e.base + uint64(r.Pos)}
	return f, nil
}

// fdeRange reads the addresses of an FDE, and returns the reader of the rest.
func (s *Section) fdeRange(e *Entry, c *CIE) (FDE, *dwarfdata.Reader) {
	r := &e.buf
	start := ReadPointer(r, c.Enc, c.AddrSize, e.base, s.data)
	size := readEncoded(r, c.Enc, c.AddrSize)
	return FDE{Start: start, Size: size}, r
}

// maxCIEs limits the CIEs in a cache. Linkers emit a few in .eh_frame; .debug_frame has one
// or two per compilation unit.
const maxCIEs = 4096

// CIEs caches values derived from a section's CIEs, by the CIE's offset. Adjacent FDEs
// usually share a CIE.
type CIEs[T any] struct {
	known map[uint64]T
	last  uint64
	value T
	has   bool
}

// Get returns the value for the CIE at offset off. If it is not cached, Get calls read.
func (c *CIEs[T]) Get(off uint64, read func(off uint64) T) T {
	if c.has && c.last == off {
		return c.value
	}
	v, ok := c.known[off]
	if !ok {
		if c.known == nil || len(c.known) == maxCIEs {
			c.known = map[uint64]T{}
		}
		v = read(off)
		c.known[off] = v
	}
	c.last, c.value, c.has = off, v, true
	return v
}
