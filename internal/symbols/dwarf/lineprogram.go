package dwarf

import (
	"slices"
	"sync"

	"fulgur/internal/symbols/dwarfdata"
)

// Opcodes (7.22).
const (
	lnsCopy           = 1
	lnsAdvancePC      = 2
	lnsAdvanceLine    = 3
	lnsSetFile        = 4
	lnsSetColumn      = 5
	lnsConstAddPC     = 8
	lnsFixedAdvancePC = 9

	lneEndSequence      = 1
	lneSetAddress       = 2
	lneSetDiscriminator = 4
)

// special holds the effect of special opcodes: the number of operations and of lines to
// advance.
type special struct {
	ops   [256]uint8
	lines [256]int16
}

// specialKey holds the parameters of special opcodes.
type specialKey struct {
	base             int8
	lineRange, first uint8
}

// specials caches them, since a compiler always uses the same parameters.
var specials sync.Map

// specialOpcodes returns the effect of special opcodes (6.2.5.1), or nil if the
// parameters are invalid.
func specialOpcodes(base int8, lineRange, first uint8) *special {
	key := specialKey{base, lineRange, first}
	if s, ok := specials.Load(key); ok {
		return s.(*special)
	}
	if lineRange == 0 {
		return nil
	}
	s := &special{}
	for op := int(first); op < 256; op++ {
		adjusted := op - int(first)
		s.ops[op] = uint8(adjusted / int(lineRange))
		s.lines[op] = int16(int(base) + adjusted%int(lineRange))
	}
	specials.Store(key, s)
	return s
}

// run executes the program once and records sequences and marks. It stops at an error;
// everything before is usable.
func (t *lineTable) run() {
	var spans []span
	m := mark{}
	for int(m.pos) < len(t.program) {
		m = mark{row: row{file: 1, line: 1}, pos: m.pos}
		end, ok := t.next(&m)
		if !ok {
			break
		}
		if end {
			continue
		}
		lo := m.addr
		s := sequence{first: int32(len(t.marks))}
		t.marks = append(t.marks, m)
		for n := 1; !end; n++ {
			if end, ok = t.next(&m); !ok {
				break
			}
			if n%markEvery == 0 && !end {
				t.marks = append(t.marks, m)
			}
		}
		s.end = int32(len(t.marks))
		if !ok || lo >= m.addr || t.format.dead(lo) {
			t.marks = t.marks[:s.first]
			continue
		}
		spans = append(spans, span{lo, m.addr, int32(len(t.sequences))})
		t.sequences = append(t.sequences, s)
	}
	t.index = paint(spans)
	t.sequences = slices.Clip(t.sequences)
	t.marks = slices.Clip(t.marks)
}

// next executes the program up to its next row, which is the end of a sequence if end is
// set. ok is false at the end of the program.
func (t *lineTable) next(m *mark) (end, ok bool) {
	b := t.program
	pos := int(m.pos)
	m.discriminator = 0 // valid for a single row
	for pos < len(b) {
		op := b[pos]
		pos++
		if op >= t.opcodeBase {
			t.advance(m, uint64(t.special.ops[op]))
			m.line += uint32(t.special.lines[op])
			m.pos = uint32(pos)
			return false, true
		}
		r := dwarfdata.Reader{Data: b, Pos: pos}
		switch op {
		case 0:
			n := r.ULEB()
			next := uint64(r.Pos) + n
			if r.Bad || n > uint64(r.Left()) {
				return false, false
			}
			if n > 0 {
				switch r.U8() {
				case lneEndSequence:
					m.pos = uint32(next)
					return true, true
				case lneSetAddress:
					m.addr = r.Word(uint8(min(n-1, 8)))
					m.op = 0
				case lneSetDiscriminator:
					m.discriminator = uint32(r.ULEB())
				}
			}
			r.Pos = int(next)
		case lnsCopy:
			m.pos = uint32(pos)
			return false, true
		case lnsAdvancePC:
			t.advance(m, r.ULEB())
		case lnsAdvanceLine:
			m.line += uint32(r.SLEB())
		case lnsSetFile:
			m.file = uint32(r.ULEB())
		case lnsSetColumn:
			m.column = uint32(r.ULEB())
		case lnsConstAddPC:
			t.advance(m, uint64(t.special.ops[255]))
		case lnsFixedAdvancePC:
			m.addr += uint64(r.U16())
			m.op = 0
		default:
			// Other opcodes do not affect rows. Skip their operands.
			for range t.operands[op] {
				r.ULEB()
			}
		}
		if r.Bad {
			return false, false
		}
		pos = r.Pos
	}
	return false, false
}

// advance advances the address by a number of operations.
func (t *lineTable) advance(m *mark, ops uint64) {
	if t.maxOps == 1 {
		m.addr += t.minInst * ops
		return
	}
	ops += uint64(m.op)
	m.addr += t.minInst * (ops / t.maxOps)
	m.op = uint32(ops % t.maxOps)
}

// find returns the row of an address.
func (t *lineTable) find(addr uint64) (row, bool) {
	i := t.index.find(addr)
	if i < 0 {
		return row{}, false
	}
	s := t.sequences[i]
	lo, hi := int(s.first), int(s.end)
	for hi-lo > 1 { // the last mark that is not above addr
		if mid := (lo + hi) / 2; t.marks[mid].addr <= addr {
			lo = mid
		} else {
			hi = mid
		}
	}
	m := t.marks[lo]
	for {
		found := m.row
		end, ok := t.next(&m)
		if !ok || end || m.addr > addr {
			return found, true
		}
	}
}
