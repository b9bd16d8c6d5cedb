package bolt

import (
	"debug/elf"
	"errors"

	"fulgur/internal/symbols/disasm"
	"fulgur/internal/symbols/elffile"
)

// Code reads the machine code of a file. It is not safe for concurrent use.
type Code struct {
	file     *elffile.File
	segments []elffile.Segment
	pages    map[page][]byte
}

// page identifies a part of a segment.
type page struct {
	segment int
	number  uint64
}

const (
	// pageSize is the size of a page, in bytes. Each page is read together with the start of
	// the next, so that it contains all of its last instruction.
	pageSize   = 16 << 10
	longestX86 = 15
	// maxPages bounds the pages in memory.
	maxPages = 512
)

// NewCode returns the code of f, which must stay open.
func NewCode(f *elffile.File) *Code {
	c := &Code{file: f, pages: map[page][]byte{}}
	for _, s := range f.Segments() {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 {
			c.segments = append(c.segments, s)
		}
	}
	return c
}

// errNoCode is returned for an address outside the code.
var errNoCode = errors.New("no code at this address")

// at returns the code from addr on, at least a whole instruction unless the code ends.
func (c *Code) at(addr uint64) ([]byte, error) {
	for i, s := range c.segments {
		offset := addr - s.Addr
		if offset >= s.FileSize {
			continue
		}
		p := page{i, offset / pageSize}
		start := p.number * pageSize
		b, ok := c.pages[p]
		if !ok {
			if len(c.pages) == maxPages {
				clear(c.pages)
			}
			var err error
			if b, err = c.file.Bytes(int64(s.Offset+start), min(s.FileSize-start, pageSize+longestX86), "machine code"); err != nil {
				return nil, err
			}
			c.pages[p] = b
		}
		return b[offset-start:], nil
	}
	return nil, errNoCode
}

// Step decodes the instruction at addr and returns its size in bytes; see [disasm.Step].
func (c *Code) Step(addr uint64) (size int, flow disasm.Flow, known bool, err error) {
	b, err := c.at(addr)
	if err != nil {
		return 0, 0, false, err
	}
	return disasm.Step(c.file.Machine(), b)
}

// Contains returns the end of the part of the range from start to limit that is in the same
// segment as start. It reports false if start is in no segment.
func (c *Code) Contains(start, limit uint64) (uint64, bool) {
	for _, s := range c.segments {
		if start-s.Addr < s.FileSize {
			return min(limit, s.Addr+s.FileSize), true
		}
	}
	return 0, false
}
