package cpython

import "fulgur/internal/runtimes"

// Line implements [runtimes.Runtime]. A position is the index of an instruction: in bytes
// up to 3.9, in units of 2 bytes from 3.10 on. In 3.11 and 3.12 it is the index just before
// the next instruction. Instructions without a line get the function's first line.
func (Runtime) Line(c *runtimes.Code, position int) int {
	if position < 0 {
		return c.FirstLine
	}
	switch {
	case c.Version <= 9:
		return lineByNumbers(c.Lines, c.FirstLine, position)
	case c.Version == 10:
		return lineByRanges(c.Lines, c.FirstLine, 2*position)
	}
	return lineByLocations(c.Lines, c.FirstLine, position)
}

// lineByNumbers reads co_lnotab: pairs of an unsigned byte offset delta and a signed line
// delta; see Objects/lnotab_notes.txt of CPython 3.9.
func lineByNumbers(table string, line, position int) int {
	at := 0
	for i := 0; i+1 < len(table); i += 2 {
		if at += int(table[i]); at > position {
			break
		}
		line += int(int8(table[i+1]))
	}
	return valid(line)
}

// lineByRanges reads co_linetable of 3.10 (PEP 626): pairs of the length of a range in bytes
// and a signed line delta, -128 for a range without a line.
func lineByRanges(table string, first, position int) int {
	line, end := first, 0
	for i := 0; i+1 < len(table); i += 2 {
		delta, has := int(int8(table[i+1])), true
		if delta == -128 {
			delta, has = 0, false
		}
		line += delta
		if end += int(table[i]); position < end {
			if !has {
				return first
			}
			return valid(line)
		}
	}
	return 0
}

// Codes of entries in the location table.
const (
	codeOneLine0 = 10 // line delta 0; 11 and 12: deltas 1 and 2
	codeNoColumn = 13
	codeLong     = 14
	codeNone     = 15
)

// lineByLocations reads co_linetable from 3.11 on (PEP 657); see Objects/locations.md of
// CPython.
func lineByLocations(table string, first, position int) int {
	line, unit := first, 0
	varint := func(i int) (value, next int) {
		for shift := 0; i < len(table); shift += 6 {
			b := table[i]
			i++
			if shift < 32 {
				value |= int(b&63) << shift
			}
			if b&64 == 0 {
				break
			}
		}
		return value, i
	}
	signed := func(i int) (value, next int) {
		value, next = varint(i)
		if value&1 != 0 {
			return -(value >> 1), next
		}
		return value >> 1, next
	}
	for i := 0; i < len(table); {
		b := table[i]
		i++
		delta, has := 0, true
		switch code := b >> 3 & 15; {
		case code == codeNone:
			has = false
		case code == codeLong:
			delta, i = signed(i)
			for range 3 { // the end line and two columns
				_, i = varint(i)
			}
		case code == codeNoColumn:
			delta, i = signed(i)
		case code >= codeOneLine0:
			delta = int(code) - codeOneLine0
			i += 2
		default:
			i++
		}
		line += delta
		if unit += int(b&7) + 1; position < unit {
			if !has {
				return first
			}
			return valid(line)
		}
	}
	return 0
}

// valid returns line, or 0 if it is out of range.
func valid(line int) int {
	if line < 0 || line > maxLine {
		return 0
	}
	return line
}

const maxLine = 1 << 30
