package elffile

import (
	"debug/elf"
	"testing"
)

// A variable's address follows from the mapping of the file before it, unless the mapping may belong to two
// segments.
func TestDataAddress(t *testing.T) {
	const page = 0x1000
	data := func(off, addr, size, memory uint64) Segment {
		return Segment{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_W, Offset: off, Addr: addr, FileSize: size, MemSize: memory}
	}
	code := Segment{Type: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_X, Addr: 0x400000, FileSize: 0x2e80, MemSize: 0x2e80}
	for name, c := range map[string]struct {
		segments        []Segment
		start, distance uint64
		want            uint64 // 0 for none
	}{
		"data":                       {[]Segment{code, data(0x2e80, 0x403e80, 0x200, 0x1200)}, 0x2000, 0xe88, 0x403e88},
		"zeros":                      {[]Segment{code, data(0x2e80, 0x403e80, 0x200, 0x1200)}, 0x2000, 0x1f00, 0x404f00},
		"second page":                {[]Segment{code, data(0x2e80, 0x403e80, 0x200, 0x1200)}, 0x3000, 0x10, 0x404010},
		"before the segment":         {[]Segment{code, data(0x2e80, 0x403e80, 0x200, 0x1200)}, 0x2000, 0xe7f, 0},
		"beyond the segment":         {[]Segment{code, data(0x2e80, 0x403e80, 0x200, 0x1200)}, 0x2000, 0x2080, 0},
		"a mapping of code":          {[]Segment{code, data(0x2e80, 0x403e80, 0x200, 0x1200)}, 0x1000, 0x10, 0},
		"far beyond":                 {[]Segment{data(0x2e80, 0x403e80, 0x200, 0x1200)}, 0x2000, 1 << 63, 0},
		"two segments of a page":     {[]Segment{data(0x2000, 0x403000, 0x100, 0x1000), data(0x2100, 0x405100, 0x100, 0x200)}, 0x2000, 0x110, 0},
		"one of them read-only":      {[]Segment{data(0x2000, 0x403000, 0x100, 0x1000), data(0x2100, 0x405100, 0x100, 0x200), {Type: elf.PT_GNU_RELRO, Addr: 0x403000, MemSize: 0x1000}}, 0x2000, 0x110, 0x405110},
		"no file":                    {nil, 0, 0, 0},
		"overflow":                   {[]Segment{data(^uint64(0)-0x10, ^uint64(0)-0x10, ^uint64(0), 0x20)}, ^uint64(0) - 0xfff, 0xff8, ^uint64(0) - 7},
		"a segment that is not data": {[]Segment{{Type: elf.PT_NOTE, Flags: elf.PF_W, FileSize: 0x100, MemSize: 0x100}}, 0, 8, 0},
	} {
		f := &File{segments: c.segments}
		if got, ok := f.DataAddress(c.start, c.distance, page); got != c.want && ok || ok != (c.want != 0) {
			t.Errorf("%s: got %#x %t, want %#x", name, got, ok, c.want)
		}
	}
}
