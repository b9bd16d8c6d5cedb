package elftest

import (
	"debug/elf"
	"slices"
)

// The addresses of the sections of a generated [Program].
const (
	ProgramCode   = 0x401000
	programFrames = 0x600000
)

// Program is a generated amd64 program with DWARF and .eh_frame.
type Program struct {
	// Bytes is the contents of the file.
	Bytes []byte
	// Damaged is whether the file was damaged after it was generated, so that its contents
	// may be wrong.
	Damaged bool
	// CodeEnd is one past the last address of the code, which begins at [ProgramCode].
	CodeEnd uint64
	// Rules holds the rules of .eh_frame by address.
	Rules []FrameRule

	info *debugInfo
}

// At returns the functions at addr according to the DWARF, innermost first, or nil if
// there are none.
func (p *Program) At(addr uint64) []Place { return p.info.at(addr) }

// NewProgram returns the program encoded by choices. It has the structure of compiler
// output: units, functions, inlined calls, ranges, line programs, CIEs and FDEs.
// Remaining choices damage it: bytes are set, runs are repeated, inserted or cut, and
// headers get wrong values.
func NewProgram(choices *Choices) *Program {
	p := &Program{info: newDebugInfo(choices)}
	frames := newCallFrames(choices, programFrames)
	addr := uint64(ProgramCode)
	for range 1 + choices.Below(3) {
		starts := []uint64{addr}
		for range 1 + choices.Below(4) {
			addr += 1 + uint64(choices.Below(300))
			starts = append(starts, addr)
		}
		p.info.unit(starts)
		for i, start := range starts[1:] {
			frames.function(starts[i], start)
		}
	}
	p.CodeEnd, p.Rules = addr, frames.rules
	sections := append([]Section{{
		Name: ".text", Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Addr: ProgramCode,
		Content: make([]byte, addr-ProgramCode),
	}, frames.section()}, p.info.sections()...)
	for i := 1; i < len(sections) && !choices.Done(); i++ {
		for range choices.Below(4) {
			sections[i].Content = damage(choices, sections[i].Content)
			p.Damaged = true
		}
	}
	p.Bytes = File{
		Segments: []Segment{{
			Type: elf.PT_LOAD, Section: 1,
			Prog64: elf.Prog64{Flags: uint32(elf.PF_R | elf.PF_X), Align: 4096},
		}},
		Sections: sections,
	}.Bytes()
	for range choices.Below(4) {
		p.Bytes = damage(choices, p.Bytes)
		p.Damaged = true
	}
	return p
}

// damage returns b with one edit.
func damage(choices *Choices, b []byte) []byte {
	if len(b) == 0 {
		return b
	}
	b = slices.Clone(b)
	at := choices.Below(len(b))
	end := min(at+1+choices.Below(64), len(b))
	switch choices.Below(6) {
	case 0:
		b[at] = byte(choices.Below(256))
	case 1: // the maximum LEB128, and all ones in every other form
		for i := at; i < end; i++ {
			b[i] = 0xff
		}
	case 2:
		clear(b[at:end])
	case 3:
		b = slices.Insert(b, at, b[at:end]...)
	case 4:
		b = slices.Delete(b, at, end)
	case 5:
		copy(b[at:end], b[choices.Below(len(b)):])
	}
	return b
}
