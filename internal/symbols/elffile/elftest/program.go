package elftest

import (
	"debug/elf"
	"slices"
)

// Where the sections of a generated [Program] are.
const (
	ProgramCode   = 0x401000
	programFrames = 0x600000
)

// Program is a generated program of amd64 with DWARF and .eh_frame.
type Program struct {
	// Bytes is the file.
	Bytes []byte
	// Damaged says that the file was damaged after it was written, so that it
	// may say anything.
	Damaged bool
	// CodeEnd is the address after the last byte of code; [ProgramCode] is the
	// first.
	CodeEnd uint64
	// Rules are the rules of .eh_frame in order of address.
	Rules []FrameRule

	info *debugInfo
}

// At returns the functions that the DWARF names at addr, innermost first, or
// nil if there are none.
func (p *Program) At(addr uint64) []Place { return p.info.at(addr) }

// NewProgram returns the program that choices make. The structure is what
// compilers write: units, functions, inlined calls, ranges, line programs,
// CIE and FDEs. Choices that are left at the end damage it: bytes are set,
// runs are repeated, inserted or cut, and headers lie.
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
	case 1: // the largest LEB128, and all ones in every other form
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
