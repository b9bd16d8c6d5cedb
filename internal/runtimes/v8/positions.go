package v8

import "slices"

// noPosition is the position of code that has none in the source.
const noPosition = -1

// positionFormat is the format of the code offsets in a source position table.
type positionFormat int

const (
	// positionsSigned means that the sign distinguishes statements from expressions.
	positionsSigned positionFormat = iota
	// positionsFlagged means that the two lowest bits are flags: from 14.0 on.
	positionsFlagged
)

// position returns the position in the source, in characters, of an offset in code, and the
// number of the inlined call that contains it. Either is -1 if there is none. table is a
// source position table: pairs of a code offset and a position, each as the difference from
// the previous pair; see src/codegen/source-position-table.cc.
func (format positionFormat) position(table []byte, offset int) (at, inlined int) {
	code, source := int64(-1), int64(0) // offset -1 is the function's entry
	found := false
	for len(table) > 0 {
		step, rest, ok := unsigned(table)
		if !ok {
			break
		}
		if format == positionsFlagged {
			code += int64(step >> 2)
		} else if n := zigzag(step); n >= 0 {
			code += n
		} else {
			code -= n + 1
		}
		if code > int64(offset) {
			break
		}
		change, rest, ok := unsigned(rest)
		if !ok {
			break
		}
		source, table, found = source+zigzag(change), rest, true
	}
	if !found {
		return noPosition, noPosition
	}
	return fields(source)
}

// fields splits a position as in V8's class SourcePosition. A set lowest bit marks a position
// that is not in the script.
func fields(raw int64) (at, inlined int) {
	if raw&1 != 0 {
		return noPosition, noPosition
	}
	return int(raw>>1&(1<<30-1)) - 1, int(raw>>31&(1<<16-1)) - 1
}

// unsigned decodes a variable-length number, and returns the rest of b; see src/base/vlq.h.
func unsigned(b []byte) (n uint64, rest []byte, ok bool) {
	for i := range min(len(b), 10) {
		n |= uint64(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			return n, b[i+1:], true
		}
	}
	return 0, nil, false
}

// zigzag decodes a number whose lowest bit is the sign.
func zigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

// lines has the position of each line's end in a script, in characters.
type lines []uint32

// at returns the line of a position, 1-based, or 0 if it is not known.
func (l lines) at(position int) int {
	if position < 0 || l == nil {
		return 0
	}
	i, _ := slices.BinarySearch(l, uint32(position))
	return i + 1
}

// lineEnds returns the ends of lines in the text of a script. V8 counts characters of UTF-16.
func lineEnds(text string) lines {
	ends, at := lines{}, uint32(0)
	for i, r := range text {
		switch {
		case r == '\n', r == '\r' && (i+1 >= len(text) || text[i+1] != '\n'), r == '\u2028', r == '\u2029':
			ends = append(ends, at)
		}
		at++
		if r > 0xffff {
			at++
		}
	}
	return ends
}
