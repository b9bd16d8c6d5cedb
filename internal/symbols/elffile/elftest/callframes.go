package elftest

import (
	"encoding/binary"
	"slices"
)

// FrameRule describes how to find the caller of the amd64 code from Addr on. The CFA is the
// stack pointer, or the frame pointer if ByFP is set, plus CFA. The return address is just
// below the CFA. SavedFP is how many bytes below the CFA the caller's frame pointer is, or 0
// if it is still in its register.
type FrameRule struct {
	Addr    uint64
	ByFP    bool
	CFA     int
	SavedFP int
}

// Registers of amd64 in DWARF, and the call frame instructions used (DWARF 5, section
// 6.4.2).
const (
	dwarfRBP, dwarfRSP, dwarfRA = 6, 7, 16

	cfaAdvance1, cfaRemember, cfaRestoreState = 0x02, 0x0a, 0x0b
	cfaDef, cfaDefRegister, cfaDefOffset      = 0x0c, 0x0d, 0x0e
	cfaAdvance, cfaSaved, cfaRestore          = 0x40, 0x80, 0xc0
)

// callFrames writes an .eh_frame section for generated functions.
type callFrames struct {
	choices *Choices
	addr    uint64 // of the section
	b       []byte
	cie     int
	rules   []FrameRule
}

// newCallFrames returns an .eh_frame section at addr with a CIE.
func newCallFrames(choices *Choices, addr uint64) *callFrames {
	c := &callFrames{choices: choices, addr: addr}
	c.b = append(c.b,
		0, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, dwarfRA,
		1, 0x1b, // pcrel, sdata4
		cfaDef, dwarfRSP, 8, cfaSaved|dwarfRA, 1)
	c.pad(0)
	return c
}

// pad pads the entry at the given offset to its end.
func (c *callFrames) pad(at int) {
	for len(c.b)%8 != 0 {
		c.b = append(c.b, 0)
	}
	setLength(c.b, at)
}

// function adds an FDE for the code from low to end.
func (c *callFrames) function(low, end uint64) {
	at := len(c.b)
	c.b = append(c.b, 0, 0, 0, 0)
	c.b = binary.LittleEndian.AppendUint32(c.b, uint32(at+4-c.cie))
	c.b = binary.LittleEndian.AppendUint32(c.b, uint32(low-c.addr-uint64(len(c.b))))
	c.b = binary.LittleEndian.AppendUint32(c.b, uint32(end-low))
	c.b = append(c.b, 0)
	rule := FrameRule{Addr: low, CFA: 8}
	var remembered []FrameRule
	for {
		c.rules = append(c.rules, rule)
		step := 1 + c.choices.Below(128)
		if c.choices.Done() || rule.Addr+uint64(step) >= end {
			break
		}
		if step < 64 {
			c.b = append(c.b, cfaAdvance|byte(step))
		} else {
			c.b = append(c.b, cfaAdvance1, byte(step))
		}
		rule.Addr += uint64(step)
		switch c.choices.Below(6) {
		case 0:
			rule.CFA = 8 * (1 + c.choices.Below(200))
			c.b = binary.AppendUvarint(append(c.b, cfaDefOffset), uint64(rule.CFA))
		case 1:
			rule.SavedFP = 8 * (2 + c.choices.Below(20))
			c.b = append(c.b, cfaSaved|dwarfRBP, byte(rule.SavedFP/8))
		case 2:
			rule.SavedFP = 0
			c.b = append(c.b, cfaRestore|dwarfRBP)
		case 3:
			rule.ByFP = !rule.ByFP
			register := byte(dwarfRSP)
			if rule.ByFP {
				register = dwarfRBP
			}
			c.b = append(c.b, cfaDefRegister, register)
		case 4:
			c.b = append(c.b, cfaRemember)
			remembered = append(remembered, rule)
		case 5:
			if n := len(remembered); n > 0 {
				c.b = append(c.b, cfaRestoreState)
				at := rule.Addr
				rule = remembered[n-1]
				rule.Addr = at
				remembered = remembered[:n-1]
			}
		}
	}
	c.pad(at)
}

// section returns the section.
func (c *callFrames) section() Section {
	return Section{Name: ".eh_frame", Addr: c.addr, Content: append(slices.Clone(c.b), 0, 0, 0, 0)}
}
