package unwind

import (
	"debug/elf"
	"encoding/binary"

	"fulgur/internal/symbols/instruction"
)

// Numbers of registers in x86-64 instructions, and the number for the return address.
const (
	x86Base = 3 // rbx
	x86SP   = 4 // rsp
	x86FP   = 5 // rbp
	x86RA   = 16
)

var amd64ISA = &isa{
	instructionSet: x86{},
	sp:             x86SP, fp: x86FP, ra: x86RA, base: x86Base,
	dwarf:    []uint8{0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15},
	entry:    -8,
	step:     1,
	scratch:  []uint8{0, 1, 2, 6, 7, 8, 9, 10, 11},
	saved:    []uint8{x86Base, x86FP, 12, 13, 14, 15},
	relative: uint32(elf.R_X86_64_RELATIVE), irelative: uint32(elf.R_X86_64_IRELATIVE),
}

// x86 has the instructions of x86-64.
type x86 struct{}

func (x86) decode(code []byte, at uint64) (instruction.Instruction, bool) {
	in, ok := instruction.DecodeX86(code, at)
	const (
		breakpoint       = 0xcc // between functions
		returnAndRelease = 0xc2 // of a part of a word is no code
	)
	switch {
	case !ok:
		return instruction.Instruction{}, false
	case code[0] == breakpoint:
		in.Kind = instruction.Stop
	case code[0] == returnAndRelease && code[1]%8 != 0:
		return in, false
	}
	return in, true
}

func (x86) execute(f *codeFrame, in *instruction.Instruction, code []byte, number uint32) {
	e := instruction.TakeApart(code[:in.Size])
	x86Frame{f}.execute(in, &e, number)
}

func (x86) branched(f *codeFrame, in *instruction.Instruction, jumped bool) {
	if in.Kind != instruction.ConditionalJump {
		return
	}
	// Conditions. The next one is the contrary.
	const below, equal, belowOrEqual = 2, 4, 6
	switch condition := in.Condition; {
	case condition == below && jumped, condition == below+1 && !jumped:
		f.learn(outcomeBelow)
	case condition == belowOrEqual && jumped, condition == belowOrEqual+1 && !jumped:
		f.learn(outcomeBelowOrEqual)
	case condition == equal && jumped, condition == equal+1 && !jumped:
		f.learn(outcomeEqual)
	}
}

func (x86) target(f *codeFrame, in *instruction.Instruction) value {
	o := &in.Operand
	if !o.Memory {
		return f.regs[o.Base]
	}
	return x86Frame{f}.tableEntry(&instruction.Encoding{Operand: *o, Segment: o.Segment}, 8)
}

func (x86) called(f *codeFrame) { x86Frame{f}.push(value{}) }

// isReady reports whether the stack is aligned.
func (x86) isReady(f *codeFrame) bool {
	sp := f.regs[x86SP]
	return !isFromCFA(sp) || sp.off%16 == 0
}

func (x86) refers(code []byte, at, low, high uint64, isGap func(from, to uint64) bool) bool {
	const size = 4 // of a distance
	for ; len(code) >= size; code = code[1:] {
		to := at + size + uint64(int64(int32(binary.LittleEndian.Uint32(code))))
		if to-low < high-low && isGap(to, to+1) {
			return true
		}
		at++
	}
	return false
}

func (x86) endsWithPadding(code []byte) bool {
	n := len(code)
	switch code[n-1] {
	case 0xcc:
		return true
	case 0x90: // nop, after one, a prefix, or a return
		return code[n-2] == 0x90 || code[n-2] == 0x66 || code[n-2] == 0xc3
	case 0:
		for size := 3; size <= 8; size++ {
			if code[n-size] == 0x0f && code[n-size+1] == 0x1f {
				in, ok := instruction.DecodeX86(code[n-size:], 0)
				return ok && in.Size == size
			}
		}
	}
	return false
}

func (x86) isPadding(code []byte) bool {
	e := instruction.TakeApart(code)
	return e.Map == 0 && e.Opcode == 0x90 || e.Map == 1 && e.Opcode == 0x1f
}

func (x86) restored(code []byte) (released, leaf, end int) {
	const popFP, leave, ret, retN = 0x5d, 0xc9, 0xc3, 0xc2
	if len(code) >= 2 && (code[0] == popFP || code[0] == leave) && (code[1] == ret || code[1] == retN) {
		return 1, 1, 2
	}
	return 0, 0, 0
}

// x86Frame is a frame of x86-64.
type x86Frame struct{ *codeFrame }

// push pushes a value.
func (f x86Frame) push(v value) {
	f.move(-8)
	f.store(f.regs[x86SP], 8, v)
}

// move adds to the stack pointer.
func (f x86Frame) move(n int64) {
	if sp := f.regs[x86SP]; sp.kind == valueAddress {
		sp.off += n
		f.set(x86SP, sp)
	} else {
		f.set(x86SP, value{})
	}
}

// addressOf returns the address of an operand in memory.
func (f x86Frame) addressOf(e *instruction.Encoding) value {
	o := &e.Operand
	if !o.Memory || e.Segment || o.Base == instruction.NoRegister || o.Index != instruction.NoRegister {
		return value{}
	}
	v := f.regs[o.Base]
	v.off += o.Displacement
	if v.kind != valueAddress {
		return value{}
	}
	return v
}

// operand returns the value of an operand of 8 bytes.
func (f x86Frame) operand(e *instruction.Encoding) value {
	if e.Operand.Memory {
		return f.load(f.addressOf(e))
	}
	return f.regs[e.Operand.Base]
}

// setOperand sets an operand of size bytes.
func (f x86Frame) setOperand(e *instruction.Encoding, size int64, v value) {
	if size != 8 {
		v = value{}
	}
	switch {
	case e.Operand.Memory:
		f.store(f.addressOf(e), size, v)
	case size == 1:
		f.set(byteRegister(e, e.Operand.Base), v)
	default:
		f.setGeneral(e.Operand.Base, v)
	}
}

// byteRegister returns the register that holds a register of one byte, such as rax for ah.
func byteRegister(e *instruction.Encoding, reg uint8) uint8 {
	if !e.Extended && reg&15 < 8 {
		return reg & 3
	}
	return reg & 15
}

// setGeneral sets a register, unless its number is that of a vector register.
func (f x86Frame) setGeneral(reg uint8, v value) { f.set(reg&15, v) }

// execute changes the frame as an instruction does that does not branch. number identifies it.
func (f x86Frame) execute(in *instruction.Instruction, e *instruction.Encoding, number uint32) {
	switch {
	case e.Vector || e.Map > 1:
		f.executeVector(e)
	case e.Map == 1:
		f.executeTwoByte(e)
	default:
		f.executeOneByte(in, e, number)
	}
}

// size returns the size of an operand that is not of one byte.
func size(e *instruction.Encoding) int64 {
	switch {
	case e.Wide:
		return 8
	case e.Narrow:
		return 2
	}
	return 4
}

func (f x86Frame) executeOneByte(in *instruction.Instruction, e *instruction.Encoding, number uint32) {
	op := e.Opcode
	switch {
	case op < 0x40:
		f.arithmetic(e, number)
		return
	case op >= 0x50 && op <= 0x57 && !e.Narrow:
		f.push(f.regs[e.Low])
		return
	case op >= 0x58 && op <= 0x5f && !e.Narrow:
		v := f.load(f.regs[x86SP])
		f.move(8)
		f.set(e.Low, v)
		return
	case op >= 0x50 && op <= 0x5f: // of 2 bytes
		f.lose()
		return
	case op >= 0xb0 && op <= 0xb7: // of a byte
		f.set(byteRegister(e, e.Low), value{})
		return
	case op >= 0xb8 && op <= 0xbf:
		f.set(e.Low, value{kind: valueConstant, off: e.Immediate})
		return
	case op >= 0x91 && op <= 0x97: // xchg
		f.exchange(0, e.Low, e.Wide)
		return
	}
	switch op {
	case 0x63: // movslq
		f.setGeneral(e.Register, f.tableEntry(e, 4))
	case 0x68, 0x6a:
		f.push(value{})
	case 0x69, 0x6b:
		f.setGeneral(e.Register, value{})
	case 0x80, 0x81, 0x83:
		f.arithmeticImmediate(e, number)
	case 0x84, 0x85: // test
	case 0x86:
		f.setOperand(e, 1, value{})
		f.set(byteRegister(e, e.Register), value{})
	case 0x87:
		if e.Wide && !e.Operand.Memory {
			f.exchange(e.Register, e.Operand.Base, true)
			return
		}
		f.setOperand(e, size(e), value{})
		f.setGeneral(e.Register, value{})
	case 0x88:
		f.setOperand(e, 1, value{})
	case 0x89:
		if e.Operand.Memory || e.Wide {
			f.setOperand(e, size(e), f.regs[e.Register])
			return
		}
		f.moveBound(e.Operand.Base, e.Register)
	case 0x8a, 0x8c:
		if op == 0x8c {
			f.setOperand(e, size(e), value{})
			return
		}
		f.set(byteRegister(e, e.Register), value{})
	case 0x8b:
		if !e.Operand.Memory && !e.Wide {
			f.moveBound(e.Register, e.Operand.Base)
			return
		}
		v := value{}
		if e.Wide {
			v = f.operand(e)
			if entry := f.tableEntry(e, 8); entry.kind != valueUnknown {
				v = entry
			}
		}
		f.setGeneral(e.Register, v)
	case 0x8d: // lea
		v := f.addressOf(e)
		if in.Reference != 0 && e.Wide {
			v = value{kind: valueConstant, off: int64(in.Reference)}
		} else if !e.Wide {
			v = value{}
		}
		if e.Register == x86SP && v.kind == valueUnknown {
			f.rebase(x86SP, number)
			return
		}
		f.setGeneral(e.Register, v)
	case 0x8f: // pop to the operand
		f.move(8)
		f.setOperand(e, 8, value{})
	case 0x98, 0x99: // cltq, cqto
		f.set(0, value{})
		f.set(2, value{})
	case 0x9c:
		f.push(value{})
	case 0x9d:
		f.move(8)
	case 0xa4, 0xa5, 0xa6, 0xa7, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf: // of strings
		for _, reg := range [...]uint8{0, 1, 6, 7} {
			f.set(reg, value{})
		}
	case 0xc0, 0xd0, 0xd2: // shifts
		f.setOperand(e, 1, value{})
	case 0xc1, 0xd1, 0xd3:
		f.setOperand(e, size(e), value{})
	case 0xc6:
		f.setOperand(e, 1, value{})
	case 0xc7:
		f.setOperand(e, size(e), value{})
		if !e.Operand.Memory && e.Wide {
			f.set(e.Operand.Base, value{kind: valueConstant, off: e.Immediate})
		}
	case 0xc9: // leave
		fp := f.regs[x86FP]
		v := f.load(fp)
		f.set(x86SP, fp)
		f.move(8)
		f.set(x86FP, v)
	case 0xc8: // enter
		f.lose()
	case 0xf6, 0xf7:
		switch e.Register & 7 {
		case 0, 1: // test
		case 2, 3:
			n := int64(1)
			if op == 0xf7 {
				n = size(e)
			}
			f.setOperand(e, n, value{})
		default: // multiplications and divisions
			f.set(0, value{})
			f.set(2, value{})
		}
	case 0xfe:
		f.setOperand(e, 1, value{})
	case 0xff:
		switch e.Register & 7 {
		case 0, 1:
			f.setOperand(e, size(e), value{})
		case 6:
			f.push(f.operand(e))
		}
	default:
		if op >= 0xd8 && op <= 0xdf || op == 0xd7 || op == 0xe4 || op == 0xe5 || op == 0xec || op == 0xed { // x87, xlat, in
			f.set(0, value{})
			if e.HasOperand && e.Operand.Memory {
				f.store(f.addressOf(e), 1, value{})
			}
		}
	}
}

// lose forgets the stack pointer.
func (f x86Frame) lose() {
	f.set(x86SP, value{})
	f.set(x86FP, value{})
}

// exchange exchanges two registers.
func (f x86Frame) exchange(a, b uint8, wide bool) {
	v, w := f.regs[a], f.regs[b]
	if !wide {
		v, w = value{}, value{}
	}
	f.set(a, w)
	f.set(b, v)
}

// tableEntry returns the value of a register into which an instruction loads an entry of a switch's
// table.
func (f x86Frame) tableEntry(e *instruction.Encoding, scale uint8) value {
	o := &e.Operand
	if !o.Memory || o.Index == instruction.NoRegister || o.Scale != scale || o.Relative || e.Segment {
		return value{}
	}
	format := tableFormat(2) | tableSigned
	if scale == 8 {
		format = 3 | tableAbsolute
	}
	table := o.Displacement
	if o.Base != instruction.NoRegister {
		if f.regs[o.Base].kind != valueConstant {
			return value{}
		}
		table += f.regs[o.Base].off
	}
	return f.codeFrame.tableEntry(uint64(table), o.Index&15, format)
}

// arithmetic executes add, or, adc, sbb, and, sub, xor and cmp.
func (f x86Frame) arithmetic(e *instruction.Encoding, number uint32) {
	op := e.Opcode >> 3
	toRegister := e.Opcode&2 != 0
	n := size(e)
	if e.Opcode&1 == 0 {
		n = 1
	}
	if e.Opcode&7 >= 4 { // of rax and a constant
		if op == 7 {
			f.compare(comparison{valid: true, constant: true, with: e.Immediate})
		} else {
			f.set(0, value{})
		}
		return
	}
	if op == 7 {
		ok := n == 8 && !e.Operand.Memory
		f.compare(comparison{valid: ok, a: e.Register, b: e.Operand.Base & 15})
		return
	}
	if op == 0 && n == 8 && !e.Operand.Memory {
		// The address of a table and its entry.
		a, b := f.regs[e.Register], f.regs[e.Operand.Base]
		if b.kind == valueEntry {
			a, b = b, a
		}
		to := e.Operand.Base
		if toRegister {
			to = e.Register
		}
		if a.kind == valueEntry && b.kind == valueConstant {
			if a.kind = valueTarget; a.off != b.off {
				a = value{}
			}
			f.set(to, a)
			return
		}
	}
	dest := e.Operand.Base
	if toRegister {
		dest = e.Register
	}
	isSP := n > 1 && dest == x86SP && (toRegister || !e.Operand.Memory)
	switch {
	case isSP && n == 8:
		f.rebase(x86SP, number)
	case toRegister && n == 1:
		f.set(byteRegister(e, e.Register), value{})
	case toRegister:
		f.setGeneral(e.Register, value{})
	default:
		f.setOperand(e, n, value{})
	}
}

func (f x86Frame) arithmeticImmediate(e *instruction.Encoding, number uint32) {
	op := e.Register & 7
	n := size(e)
	if e.Opcode == 0x80 {
		n = 1
	}
	if op == 7 {
		f.compare(comparison{valid: !e.Operand.Memory, constant: true, a: e.Operand.Base & 15, with: e.Immediate})
		return
	}
	v := value{}
	if !e.Operand.Memory && n == 8 {
		v = f.regs[e.Operand.Base]
		switch {
		case v.kind != valueAddress:
			v = value{}
		case op == 0:
			v.off += e.Immediate
		case op == 5:
			v.off -= e.Immediate
		default:
			v = value{}
		}
		if op == 4 && e.Operand.Base == x86SP {
			f.rebase(x86SP, number)
			return
		}
	}
	f.setOperand(e, n, v)
	// A mask is no bound of the table of a switch: it may have fewer entries.
}

// copyBound executes movzbl and movzwl.
func (f x86Frame) copyBound(e *instruction.Encoding) {
	if e.Operand.Memory {
		f.set(e.Register, value{})
		return
	}
	f.moveBound(e.Register, e.Operand.Base)
}

func (f x86Frame) executeTwoByte(e *instruction.Encoding) {
	op := e.Opcode
	switch {
	case op >= 0x40 && op <= 0x4f: // cmov
		f.setGeneral(e.Register, value{})
		return
	case op >= 0x90 && op <= 0x9f: // setcc
		f.setOperand(e, 1, value{})
		return
	case op >= 0xc8 && op <= 0xcf: // bswap
		f.set(e.Low, value{})
		return
	}
	switch op {
	case 0x02, 0x03, 0x2c, 0x2d, 0x50, 0xaf, 0xb6, 0xb7, 0xb8, 0xbc, 0xbd, 0xbe, 0xbf, 0xc5, 0xd7:
		if op == 0xb6 || op == 0xb7 {
			f.copyBound(e)
			return
		}
		f.setGeneral(e.Register, value{})
	case 0x00, 0x01, 0x05, 0x31, 0x32, 0x33, 0xa2: // also cpuid, rdtsc, syscall
		for _, reg := range [...]uint8{0, 1, 2, 11} {
			f.set(reg, value{})
		}
		if op == 0xa2 {
			f.set(x86Base, value{})
		}
		if e.HasOperand {
			f.setOperand(e, 8, value{})
		}
	case 0x7e:
		if !e.Repeat {
			f.setOperand(e, size(e), value{})
		}
	case 0xc7:
		f.set(0, value{})
		f.set(2, value{})
		f.setOperand(e, size(e), value{})
	case 0xa5, 0xab, 0xac, 0xad, 0xb3, 0xbb:
		f.setOperand(e, size(e), value{})
	case 0xba:
		if e.Register&7 > 4 {
			f.setOperand(e, size(e), value{})
		}
	case 0xb0, 0xc0:
		f.set(0, value{})
		f.set(byteRegister(e, e.Register), value{})
		f.setOperand(e, 1, value{})
	case 0xb1, 0xc1:
		f.set(0, value{})
		f.setGeneral(e.Register, value{})
		f.setOperand(e, size(e), value{})
	case 0x11, 0x13, 0x17, 0x29, 0x2b, 0x7f, 0xc3, 0xd6, 0xe7, 0xae: // stores
		if op == 0xae && e.Repeat {
			f.setOperand(e, 8, value{}) // rdfsbase
		} else if e.Operand.Memory {
			n := int64(16)
			switch op {
			case 0xae:
				n = 1 // fences, or the state of the processor
			case 0x11, 0x13, 0x17, 0xc3, 0xd6:
				n = 4
			}
			f.store(f.addressOf(e), n, value{})
		}
	}
}

func (f x86Frame) executeVector(e *instruction.Encoding) {
	op := e.Opcode
	switch {
	case e.Map == 2 && op >= 0xf0 && op <= 0xf7: // of general registers
		f.setGeneral(e.Register, value{})
		if e.Vector {
			f.set(e.Second, value{})
		} else if op == 0xf1 && e.Operand.Memory {
			f.setOperand(e, size(e), value{})
		}
	case e.Map == 3 && op == 0xf0: // rorx
		f.setGeneral(e.Register, value{})
	case e.Map == 3 && op >= 0x14 && op <= 0x17: // pextr
		f.setOperand(e, 1, value{})
	case e.Map == 1 && e.Vector:
		switch op {
		case 0x2c, 0x2d, 0x50, 0x78, 0x79, 0x93, 0xc5, 0xd7:
			f.setGeneral(e.Register, value{})
		case 0x7e:
			if e.Narrow {
				f.setOperand(e, 4, value{})
			}
		case 0x11, 0x13, 0x17, 0x29, 0x2b, 0x7f, 0xd6, 0xe7:
			if e.Operand.Memory {
				f.store(f.addressOf(e), 4, value{})
			}
		}
	}
}
