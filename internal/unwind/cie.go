package unwind

import (
	"bytes"

	"fulgur/internal/symbols/dwarfdata"
)

// cie is the common part of FDEs.
type cie struct {
	codeAlign uint64
	dataAlign int64
	ra        uint64 // register column of the return address
	enc       uint8  // encoding of the addresses in FDEs
	addrSize  uint8
	augmented bool // FDEs have augmentation data too
	signal    bool // its functions are signal trampolines
	initial   state
	// err is why FDEs with this CIE cannot be read.
	err error
}

// maxCIE bounds the size of a CIE in bytes. Real ones have about twenty.
const maxCIE = 64 << 10

// readCIE reads the CIE at offset off. It stores an error in err.
func (s *source) readCIE(off uint64) *cie {
	c := &cie{}
	if off >= s.size {
		c.err = s.errorf(off, "no CIE there")
		return c
	}
	b := make([]byte, 12)
	n, _ := s.r.ReadAt(b, int64(off))
	lengthSize, length, ok := header(b[:n])
	if !ok || length > maxCIE {
		c.err = s.errorf(off, "no CIE there")
		return c
	}
	b = make([]byte, lengthSize+length)
	n, _ = s.r.ReadAt(b, int64(off))
	e, ok := s.entry(b[:n], off)
	if !ok || !e.isCIE {
		c.err = s.errorf(off, "no CIE there")
		return c
	}
	c.parse(s, &e)
	return c
}

// parse reads a CIE's fields and runs its program.
func (c *cie) parse(s *source, e *entry) {
	r := &e.buf
	version := r.U8()
	augmentation := r.CString()
	if version == 0 || version == 2 || version > 4 {
		c.err = s.errorf(e.off, "CIE of unknown version %d", version)
		return
	}
	c.addrSize = s.addrSize
	if version == 4 {
		c.addrSize = r.U8()
		if segment := r.U8(); segment != 0 || c.addrSize != 4 && c.addrSize != 8 {
			c.err = s.errorf(e.off, "CIE with addresses of %d and segments of %d bytes", c.addrSize, segment)
			return
		}
	}
	if bytes.Equal(augmentation, []byte("eh")) {
		r.Take(uint64(c.addrSize)) // from g++ 2
		augmentation = nil
	}
	c.codeAlign = r.ULEB()
	c.dataAlign = r.SLEB()
	if version == 1 {
		c.ra = uint64(r.U8())
	} else {
		c.ra = r.ULEB()
	}
	if !c.augment(r, augmentation) {
		c.err = s.errorf(e.off, "CIE with unknown augmentation %q", augmentation)
		return
	}
	if r.Bad {
		c.err = s.errorf(e.off, "CIE ends too early")
		return
	}
	m := machine{arch: s.arch, cie: c, size: 1, emit: func(uint64, Rule) {}}
	program := dwarfdata.Reader{Data: r.Data[r.Pos:]}
	if !m.run(&program, e.base+uint64(r.Pos), 0) {
		c.err = s.errorf(e.off, "CIE with a damaged program")
		return
	}
	c.initial = m.state
}

// augment reads the augmentation data, which has a length only with 'z'.
func (c *cie) augment(r *dwarfdata.Reader, augmentation []byte) bool {
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
			c.enc = data.U8()
		case 'P':
			readEncoded(&data, data.U8(), c.addrSize) // the personality routine
		case 'L':
			data.U8() // how FDEs point to exception tables
		case 'S':
			c.signal = true
		case 'B', 'G':
			// arm64: signed with the B key, or tagged memory.
		default:
			return !data.Bad // the length determines where the program begins
		}
	}
	return !data.Bad
}
