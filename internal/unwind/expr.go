package unwind

import "fulgur/internal/symbols/dwarfdata"

// The operations of DWARF expressions (DWARF 5, 7.7.1) that occur in call frame
// information and can be expressed by rules.
const (
	opDeref      = 0x06
	opConst1u    = 0x08
	opConst1s    = 0x09
	opConst2u    = 0x0a
	opConst2s    = 0x0b
	opAnd        = 0x1a
	opMinus      = 0x1c
	opMul        = 0x1e
	opPlus       = 0x22
	opPlusUconst = 0x23
	opShl        = 0x24
	opGe         = 0x2a
	opLit0       = 0x30
	opBreg0      = 0x70
	opBregx      = 0x92
)

// operand is a symbolic value on the stack of an expression.
type operand struct {
	base operandBase
	reg  uint64 // for baseRegister and baseDeref
	off  int64  // added to the base; for baseDeref, inside the dereference
	add  int64  // for baseDeref, added to the word
}

type operandBase uint8

const (
	baseNone operandBase = iota // only off
	baseCFA
	baseRegister
	baseDeref   // the word at reg plus off
	baseIndexed // the word at the stack pointer plus off plus eight times reg, plus 8
)

// plus returns o plus n.
func (o operand) plus(n int64) operand {
	if o.base == baseDeref {
		o.add += n
	} else {
		o.off += n
	}
	return o
}

// maxOperands is the maximum stack depth of a supported expression.
const maxOperands = 4

// evaluate runs the expression on a stack that initially holds first. It reports false
// unless the result is a register, a constant, the CFA or a word in memory, plus a
// constant.
func evaluate(expr []byte, first ...operand) (operand, bool) {
	var room [maxOperands]operand
	stack := append(room[:0], first...)
	r := dwarfdata.Reader{Data: expr}
	for r.Left() > 0 {
		op := r.U8()
		n := len(stack)
		switch {
		case op >= opLit0 && op < opLit0+32:
			stack = append(stack, operand{off: int64(op - opLit0)})
		case op >= opBreg0 && op < opBreg0+32:
			stack = append(stack, operand{base: baseRegister, reg: uint64(op - opBreg0), off: r.SLEB()})
		case op == opBregx:
			reg := r.ULEB()
			stack = append(stack, operand{base: baseRegister, reg: reg, off: r.SLEB()})
		case op == opConst1u:
			stack = append(stack, operand{off: int64(r.U8())})
		case op == opConst1s:
			stack = append(stack, operand{off: int64(int8(r.U8()))})
		case op == opConst2u:
			stack = append(stack, operand{off: int64(r.Word(2))})
		case op == opConst2s:
			stack = append(stack, operand{off: int64(int16(r.Word(2)))})
		case op == opPlusUconst && n > 0:
			stack[n-1] = stack[n-1].plus(int64(r.ULEB()))
		case op == opDeref && n > 0 && stack[n-1].base == baseRegister:
			stack[n-1].base = baseDeref
		case (op == opPlus || op == opMinus) && n > 1 && stack[n-1].base == baseNone:
			c := stack[n-1].off
			if op == opMinus {
				c = -c
			}
			stack = stack[:n-1]
			stack[n-2] = stack[n-2].plus(c)
		default:
			return operand{}, false
		}
		if len(stack) > maxOperands {
			return operand{}, false
		}
	}
	if r.Bad || len(stack) == 0 {
		return operand{}, false
	}
	return stack[len(stack)-1], true
}

// pltExpression recognizes the expression that linkers emit for the stubs of amd64's
// procedure linkage table: the stack pointer plus off, plus eight from byte threshold of
// a stub on.
func pltExpression(expr []byte) (off int64, threshold uint8, ok bool) {
	r := dwarfdata.Reader{Data: expr}
	ok = r.U8() == opBreg0+amd64SP
	off = r.SLEB()
	ok = ok && r.U8() == opBreg0+amd64RA && r.SLEB() == 0 && r.U8() == opLit0+15 && r.U8() == opAnd
	threshold = r.U8() - opLit0
	ok = ok && threshold < 16 && r.U8() == opGe && r.U8() == opLit0+3 && r.U8() == opShl && r.U8() == opPlus
	return off, threshold, ok && !r.Bad && r.Left() == 0
}

// indexedExpression recognizes the expression of OpenSSL's big-number arithmetic: the word
// at the stack pointer plus off plus eight times a register, plus 8.
func indexedExpression(expr []byte, sp uint64) (reg uint64, off int64, ok bool) {
	r := dwarfdata.Reader{Data: expr}
	ok = r.U8() == opBreg0+byte(sp)
	off = r.SLEB()
	op := r.U8()
	ok = ok && op >= opBreg0 && op < opBreg0+32 && r.SLEB() == 0 && r.U8() == opLit0+8 && r.U8() == opMul &&
		r.U8() == opPlus && r.U8() == opDeref && r.U8() == opPlusUconst && r.ULEB() == 8
	return uint64(op - opBreg0), off, ok && !r.Bad && r.Left() == 0
}
