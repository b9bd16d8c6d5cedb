package elftest

import (
	"encoding/binary"
	"fmt"
)

// SourceFile is the source file of all code that the debug information describes.
const SourceFile = "/src/code.c"

// Place is a function at an address, and the line there.
type Place struct {
	Name string
	Line int
}

// code is a function or an inlined call, with the calls inlined into it.
type code struct {
	name     string
	low, end uint64
	line     int // of the call, if inlined
	calls    []*code
}

// lineRow is the line of the code from addr on.
type lineRow struct {
	addr uint64
	line int
}

// debugInfo writes DWARF for generated functions.
type debugInfo struct {
	choices *Choices
	version int
	count   int // number of functions named so far

	info, abbrev, line, ranges, aranges []byte

	functions []*code
	rows      []lineRow // by address
}

// Abbreviation codes that [debugInfo] uses.
const (
	abbrevUnit = 1 + iota
	abbrevAbstract
	abbrevFunction
	abbrevOutOfLine
	abbrevInlined
	abbrevInlinedRanges
	abbrevBlock
	abbrevVariable
)

// abbreviations of all units: code, tag, children, then pairs of attribute and form.
var abbreviations = []byte{
	abbrevUnit, 0x11, 1, 0x03, 0x08, 0x1b, 0x08, 0x10, 0x17, 0x11, 0x01, 0x12, 0x07, 0, 0,
	abbrevAbstract, 0x2e, 0, 0x03, 0x08, 0x20, 0x0b, 0, 0,
	abbrevFunction, 0x2e, 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0,
	abbrevOutOfLine, 0x2e, 1, 0x31, 0x13, 0x11, 0x01, 0x12, 0x07, 0, 0,
	abbrevInlined, 0x1d, 1, 0x31, 0x13, 0x11, 0x01, 0x12, 0x07, 0x58, 0x0b, 0x59, 0x0f, 0, 0,
	abbrevInlinedRanges, 0x1d, 1, 0x31, 0x13, 0x55, 0x17, 0x58, 0x0b, 0x59, 0x0f, 0, 0,
	abbrevBlock, 0x0b, 1, 0x11, 0x01, 0x12, 0x07, 0, 0,
	abbrevVariable, 0x34, 0, 0x03, 0x08, 0x02, 0x18, 0, 0,
	0,
}

// newDebugInfo returns DWARF of version 4 or 5 without units.
func newDebugInfo(choices *Choices) *debugInfo {
	d := &debugInfo{choices: choices, version: 4 + choices.Below(2), abbrev: abbreviations}
	if d.version == 5 {
		// The header of .debug_rnglists; its length is written at the end.
		d.ranges = []byte{0, 0, 0, 0, 5, 0, 8, 0, 0, 0, 0, 0}
	}
	return d
}

// unit adds a unit with the functions that begin at starts. Each ends where the next
// begins; the last start is the end of the unit.
func (d *debugInfo) unit(starts []uint64) {
	at := len(d.info)
	low, end := starts[0], starts[len(starts)-1]
	d.info = append(d.info, 0, 0, 0, 0, byte(d.version), 0)
	if d.version == 5 {
		d.info = append(d.info, 1, 8, 0, 0, 0, 0)
	} else {
		d.info = append(d.info, 0, 0, 0, 0, 8)
	}
	d.info = append(d.info, abbrevUnit)
	d.info = append(d.info, "code.c\x00/src\x00"...)
	d.info = binary.LittleEndian.AppendUint32(d.info, uint32(len(d.line)))
	d.span(low, end)

	abstract := make(map[string]uint32) // offsets in the unit
	var functions []*code
	for i, start := range starts[:len(starts)-1] {
		functions = append(functions, d.code(start, starts[i+1], 0))
	}
	for _, f := range functions {
		d.declare(at, f, abstract)
	}
	for _, f := range functions {
		d.define(f, abstract, true)
	}
	d.info = append(d.info, 0)
	setLength(d.info, at)
	d.functions = append(d.functions, functions...)
	d.lines(functions)
	if d.choices.Flag() { // some compilers write none
		set := len(d.aranges)
		d.aranges = append(d.aranges, 0, 0, 0, 0, 2, 0)
		d.aranges = binary.LittleEndian.AppendUint32(d.aranges, uint32(at))
		d.aranges = append(d.aranges, 8, 0, 0, 0, 0, 0)
		d.aranges = binary.LittleEndian.AppendUint64(d.aranges, low)
		d.aranges = binary.LittleEndian.AppendUint64(d.aranges, end-low)
		d.aranges = append(d.aranges, make([]byte, 16)...)
		setLength(d.aranges, set)
	}
}

// code chooses the functions inlined into the code from low to end.
func (d *debugInfo) code(low, end uint64, depth int) *code {
	c := &code{name: fmt.Sprintf("function%d", d.count), low: low, end: end, line: 1 + d.choices.Below(1000)}
	d.count++
	for at := low; depth < 40 && end-at >= 4 && d.choices.Below(3) == 1; {
		start := at + uint64(d.choices.Below(int(end-at-2)))
		stop := start + 1 + uint64(d.choices.Below(int(end-start)))
		c.calls = append(c.calls, d.code(start, stop, depth+1))
		at = stop
	}
	return c
}

// declare writes the abstract entries of the functions inlined below c, for references
// from the unit that begins at offset at.
func (d *debugInfo) declare(at int, c *code, abstract map[string]uint32) {
	for _, call := range c.calls {
		abstract[call.name] = uint32(len(d.info) - at)
		d.info = append(d.info, abbrevAbstract)
		d.info = append(append(d.info, call.name...), 0, 1)
		d.declare(at, call, abstract)
	}
}

// define writes the entry of c and its children.
func (d *debugInfo) define(c *code, abstract map[string]uint32, outermost bool) {
	blocks := 0
	switch {
	case outermost:
		d.info = append(d.info, abbrevFunction)
		d.info = append(append(d.info, c.name...), 0)
		d.span(c.low, c.end)
	case d.choices.Flag():
		d.info = append(d.info, abbrevInlinedRanges)
		d.info = binary.LittleEndian.AppendUint32(d.info, abstract[c.name])
		d.info = binary.LittleEndian.AppendUint32(d.info, uint32(len(d.ranges)))
		d.call(c.line)
		d.rangeList(c.low, c.end)
	default:
		d.info = append(d.info, abbrevInlined)
		d.info = binary.LittleEndian.AppendUint32(d.info, abstract[c.name])
		d.span(c.low, c.end)
		d.call(c.line)
	}
	for d.choices.Below(4) == 1 {
		d.info = append(d.info, abbrevVariable, 'v', 0, 2, 0x91, 0x70)
	}
	for d.choices.Below(4) == 1 && blocks < 10 {
		d.info = append(d.info, abbrevBlock)
		d.span(c.low, c.end)
		blocks++
	}
	for _, call := range c.calls {
		d.define(call, abstract, false)
	}
	d.info = append(d.info, make([]byte, blocks+1)...)
}

// span writes DW_AT_low_pc and DW_AT_high_pc.
func (d *debugInfo) span(low, end uint64) {
	d.info = binary.LittleEndian.AppendUint64(d.info, low)
	d.info = binary.LittleEndian.AppendUint64(d.info, end-low)
}

// call writes DW_AT_call_file and DW_AT_call_line.
func (d *debugInfo) call(line int) {
	d.info = append(d.info, 1)
	d.info = binary.AppendUvarint(d.info, uint64(line))
}

// rangeList writes one or two ranges that cover the code from low to end.
func (d *debugInfo) rangeList(low, end uint64) {
	middle := low + (end-low)/2
	if d.version == 5 {
		for _, r := range [][2]uint64{{low, middle}, {middle, end}} {
			d.ranges = append(d.ranges, 7) // DW_RLE_start_length
			d.ranges = binary.LittleEndian.AppendUint64(d.ranges, r[0])
			d.ranges = binary.AppendUvarint(d.ranges, r[1]-r[0])
		}
		d.ranges = append(d.ranges, 0)
		return
	}
	// The base is absolute, so the unit's address does not matter.
	for _, v := range []uint64{1<<64 - 1, 0, low, middle, middle, end, 0, 0} {
		d.ranges = binary.LittleEndian.AppendUint64(d.ranges, v)
	}
}

// lines writes the line program of a unit with these functions.
func (d *debugInfo) lines(functions []*code) {
	at := len(d.line)
	d.line = append(d.line, 0, 0, 0, 0, byte(d.version), 0)
	if d.version == 5 {
		d.line = append(d.line, 8, 0)
	}
	header := len(d.line)
	d.line = append(d.line,
		0, 0, 0, 0,
		1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1)
	if d.version == 5 {
		d.line = append(d.line, 1, 1, 8, 1)
		d.line = append(d.line, "/src\x00"...)
		d.line = append(d.line, 2, 1, 8, 2, 0x0b, 2)
		d.line = append(d.line, SourceFile+"\x00\x00"+SourceFile+"\x00\x00"...)
	} else {
		d.line = append(d.line, 0)
		d.line = append(d.line, SourceFile+"\x00\x00\x00\x00\x00"...)
	}
	binary.LittleEndian.PutUint32(d.line[header:], uint32(len(d.line)-header-4))
	for _, f := range functions {
		d.line = append(d.line, 0, 9, 2) // DW_LNE_set_address
		d.line = binary.LittleEndian.AppendUint64(d.line, f.low)
		line := 1
		for addr := f.low; addr < f.end; {
			next := 1 + d.choices.Below(200)
			d.line = appendSLEB(append(d.line, 3), int64(next-line)) // DW_LNS_advance_line
			d.line = append(d.line, 1)                               // DW_LNS_copy
			line = next
			d.rows = append(d.rows, lineRow{addr, line})
			step := min(1+uint64(d.choices.Below(64)), f.end-addr)
			d.line = binary.AppendUvarint(append(d.line, 2), step) // DW_LNS_advance_pc
			addr += step
		}
		d.line = append(d.line, 0, 1, 1) // DW_LNE_end_sequence
	}
	setLength(d.line, at)
}

// sections returns the sections.
func (d *debugInfo) sections() []Section {
	ranges := ".debug_ranges"
	if d.version == 5 {
		ranges = ".debug_rnglists"
		setLength(d.ranges, 0)
	}
	return []Section{
		{Name: ".debug_info", Content: d.info},
		{Name: ".debug_abbrev", Content: d.abbrev},
		{Name: ".debug_line", Content: d.line},
		{Name: ranges, Content: d.ranges},
		{Name: ".debug_aranges", Content: d.aranges},
	}
}

// at returns the functions at addr, innermost first, or nil if there are none.
func (d *debugInfo) at(addr uint64) []Place {
	line := 0
	for _, r := range d.rows {
		if r.addr <= addr {
			line = r.line
		}
	}
	var places []Place
	within := d.functions
	for i := 0; i < len(within); i++ {
		c := within[i]
		if addr < c.low || addr >= c.end {
			continue
		}
		if len(places) > 0 {
			places[0].Line = c.line
		}
		places = append([]Place{{c.name, line}}, places...)
		within, i = c.calls, -1
	}
	return places
}

// setLength writes the length of the 32-bit DWARF unit from at to the end of b.
func setLength(b []byte, at int) {
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
}

// appendSLEB appends v as SLEB128 (DWARF 5, section 7.6).
func appendSLEB(b []byte, v int64) []byte {
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}
