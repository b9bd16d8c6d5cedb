package unwind

import (
	"debug/elf"
	"encoding/binary"
	"slices"

	"fulgur/internal/symbols/instruction"
)

// armZero is the number of the zero register, which is that of the stack pointer in other instructions.
const armZero = arm64SP

var arm64ISA = &isa{
	instructionSet: a64{},
	sp:             arm64SP, fp: arm64FP, ra: arm64RA, base: noBase,
	dwarf: []uint8{
		0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
		16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, arm64SP,
	},
	link:     true,
	step:     armSize,
	scratch:  []uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, arm64RA},
	saved:    []uint8{19, 20, 21, 22, 23, 24, 25, 26, 27, 28, arm64FP},
	pairs:    true,
	relative: uint32(elf.R_AARCH64_RELATIVE), irelative: uint32(elf.R_AARCH64_IRELATIVE),
}

// armSize is the size of an instruction, in bytes.
const armSize = 4

// a64 has the instructions of arm64. Those that sign return addresses, or check the signatures, leave a
// return address a return address: the walkers remove the signature.
type a64 struct{}

// isARMPage reports whether an instruction is adrp, and isARMAddress whether it is adr.
func isARMPage(word uint32) bool    { return word&0x9f000000 == 0x90000000 }
func isARMAddress(word uint32) bool { return word&0x9f000000 == 0x10000000 }

// armAddress returns the address that adr or adrp computes.
func armAddress(word uint32, at uint64) uint64 {
	distance := int64(int32(word<<8)>>13)<<2 | int64(word>>29&3)
	if isARMPage(word) {
		return at&^0xfff + uint64(distance<<12)
	}
	return at + uint64(distance)
}

func (a64) decode(code []byte, at uint64) (instruction.Instruction, bool) {
	in, ok := instruction.DecodeARM64(code, at)
	if !ok {
		in = instruction.Instruction{}
		if len(code) >= armSize {
			in.Size = armSize
		}
		return in, false
	}
	word := binary.LittleEndian.Uint32(code)
	in.Reference = 0 // a literal is no code
	switch {
	case word>>25&15 == 1, word>>25&15 == 3: // reserved
		return in, false
	case isARMAddress(word), isARMPage(word):
		in.Reference = armAddress(word, at)
	case word&0xfffffc1f == 0xd65f0000 && armSource(word) != arm64RA: // a jump rather than a return
		in.Kind, in.Operand = instruction.IndirectJump, instruction.Operand{Base: armSource(word)}
	}
	return in, true
}

// armTarget and armSource return the first register, mostly the target, and the second one.
func armTarget(word uint32) uint8 { return uint8(word & 31) }
func armSource(word uint32) uint8 { return uint8(word >> 5 & 31) }

func (a64) branched(f *codeFrame, in *instruction.Instruction, jumped bool) {
	if in.Kind != instruction.ConditionalJump || in.Test.Mask != 0 {
		return
	}
	condition := in.Condition
	if !jumped {
		condition ^= 1 // the contrary
	}
	const equal, below, belowOrEqual = 0, 3, 9
	switch condition {
	case equal:
		f.learn(outcomeEqual)
	case below:
		f.learn(outcomeBelow)
	case belowOrEqual:
		f.learn(outcomeBelowOrEqual)
	}
}

func (a64) target(f *codeFrame, in *instruction.Instruction) value { return f.regs[in.Operand.Base] }

func (a64) called(f *codeFrame) { f.set(arm64RA, value{}) }

// isReady reports whether the return address was saved, which a call overwrites.
func (a64) isReady(f *codeFrame) bool {
	ra := f.caller(arm64RA)
	return slices.Contains(f.regs[:], ra) || slices.ContainsFunc(f.slots, func(s stackSlot) bool { return s.value == ra })
}

func (a64) refers(code []byte, at, low, high uint64, isGap func(from, to uint64) bool) bool {
	for ; len(code) >= armSize; code, at = code[armSize:], at+armSize {
		word := binary.LittleEndian.Uint32(code)
		var from, size uint64
		switch {
		case word&0x7c000000 == 0x14000000: // b, bl
			from, size = at+uint64(int64(int32(word<<6)>>4)), 1
		case isARMAddress(word):
			from, size = armAddress(word, at), 1
		case isARMPage(word):
			from, size = armAddress(word, at), 1<<12
		default:
			continue
		}
		if from < high && from+size > low && isGap(from, from+size) {
			return true
		}
	}
	return false
}

const (
	armNop = 0xd503201f
	// armZap is the padding between the built-in functions of V8.
	armZap = 0xcccccccc
)

func (a64) endsWithPadding(code []byte) bool {
	word := binary.LittleEndian.Uint32(code[len(code)-armSize:])
	return word == armNop || word == 0 || word == armZap
}

func (a64) isPadding(code []byte) bool { return binary.LittleEndian.Uint32(code) == armNop }

// isARMHint reports whether an instruction has no effect on general registers, except that it signs the return
// address or checks its signature.
func isARMHint(word uint32) bool { return word&0xfffff01f == armNop&0xfffff01f }

// maxEpilogue bounds the instructions from the one that restores the frame pointer to the function's end.
const maxEpilogue = 16

func (a64) restored(code []byte) (released, leaf, end int) {
	const load, loadMask, post, postMask = 0xa840781d, 0xfe407c1f, 0x008003e0, 0x018003e0
	code = code[:min(len(code), maxEpilogue*armSize)]
	word := uint32(0)
	if len(code) >= armSize {
		word = binary.LittleEndian.Uint32(code)
	}
	if word&loadMask != load { // ldp x29, x30
		return 0, 0, 0
	}
	leaf = armSize
	isLeaf := word&postMask == post // ldp x29, x30, [sp], #size
	for at := armSize; at+armSize <= len(code); at += armSize {
		in, ok := instruction.DecodeARM64(code[at:], uint64(at))
		switch {
		case !ok:
			return 0, 0, 0
		case in.Kind.Ends() && in.Kind != instruction.Stop:
			if !isLeaf {
				leaf = at
			}
			return armSize, leaf, at + armSize
		case in.Kind != instruction.Plain:
			return 0, 0, 0
		}
		isLeaf = isLeaf && isARMHint(binary.LittleEndian.Uint32(code[at:]))
	}
	return 0, 0, 0
}

func (a64) execute(f *codeFrame, in *instruction.Instruction, code []byte, number uint32) {
	a, word := armFrame{f}, binary.LittleEndian.Uint32(code)
	switch {
	case word&0x1c000000 == 0x10000000:
		a.immediate(in, word, number)
	case word&0x1c000000 == 0x14000000:
		a.system(word)
	case word&0x0a000000 == 0x08000000:
		a.memory(word)
	case word&0x0e000000 == 0x0a000000:
		a.register(word, number)
	case word&0x0e000000 == 0x0e000000:
		a.float(word)
	case word&0x1e000000 == 0x04000000:
		a.scalable(word, number)
	}
}

// armFrame is a frame of arm64.
type armFrame struct{ *codeFrame }

// write sets a register, unless it is the zero register.
func (a armFrame) write(reg uint8, v value) {
	if reg != armZero {
		a.set(reg, v)
	}
}

// writeSP sets a register that may be the stack pointer.
func (a armFrame) writeSP(reg uint8, v value, number uint32) {
	if reg == arm64SP && v.kind != valueAddress {
		a.rebase(reg, number)
		return
	}
	a.set(reg, v)
}

// read returns the value of a register. That of the zero register is not known.
func (a armFrame) read(reg uint8) value {
	if reg == armZero {
		return value{}
	}
	return a.regs[reg]
}

// plus returns the sum of a value and a number. It is known of addresses.
func (v value) plus(n int64) value {
	switch {
	case v.kind == valueAddress || v.kind == valueConstant:
		v.off += n
	case n != 0:
		v = value{}
	}
	return v
}

// immediate executes instructions with a constant operand.
func (a armFrame) immediate(in *instruction.Instruction, word, number uint32) {
	rd, rn, wide := armTarget(word), armSource(word), word>>31 != 0
	switch word >> 23 & 7 {
	case 0, 1:
		a.write(rd, value{kind: valueConstant, off: int64(in.Reference)})
		if isARMPage(word) {
			in.Reference = 0 // until another instruction adds to it
		}
	case 2: // add, sub
		n := int64(word>>10&0xfff) << (12 * (word >> 22 & 1))
		subtracts := word>>30&1 != 0
		v := value{}
		if wide && subtracts {
			v = a.regs[rn].plus(-n)
		} else if wide {
			v = a.regs[rn].plus(n)
		}
		if word>>29&1 != 0 { // sets the flags
			a.write(rd, v)
			a.compare(comparison{valid: subtracts && rd != rn, constant: true, a: rn, with: n})
			return
		}
		if v.kind == valueConstant {
			in.Reference = uint64(v.off)
		}
		a.writeSP(rd, v, number)
	case 3: // of tags
		a.writeSP(rd, value{}, number)
	case 4: // and, orr, eor, ands
		if word>>29&3 == 3 {
			a.write(rd, value{})
			a.compare(comparison{})
			return
		}
		a.writeSP(rd, value{}, number)
	case 5:
		a.moveWide(word)
	case 6: // bit fields
		if isLow := word>>10&0xfff == 31; isLow && wide && word>>29&3 != 1 { // uxtw, sxtw
			a.moveLow(rd, rn)
			return
		}
		a.write(rd, value{})
	default:
		a.write(rd, value{})
	}
}

// moveWide executes movn, movz and movk.
func (a armFrame) moveWide(word uint32) {
	rd, shift := armTarget(word), 16*(word>>21&3)
	n := int64(word>>5&0xffff) << shift
	v := value{kind: valueConstant}
	switch word >> 29 & 3 {
	case 0:
		v.off = ^n
	case 2:
		v.off = n
	default:
		if v = a.read(rd); v.kind != valueConstant {
			v = value{}
			break
		}
		v.off = v.off&^(0xffff<<shift) | n
	}
	if word>>31 == 0 && v.kind == valueConstant {
		v.off = int64(uint32(v.off))
	}
	a.write(rd, v)
}

// moveLow moves the low half of a register.
func (a armFrame) moveLow(rd, rn uint8) {
	if rd != armZero && rn != armZero {
		a.moveBound(rd, rn)
	} else {
		a.write(rd, value{})
	}
}

// register executes instructions whose operands are registers.
func (a armFrame) register(word, number uint32) {
	rd, rn, rm, wide := armTarget(word), armSource(word), uint8(word>>16&31), word>>31 != 0
	switch {
	case word&0x7fe0ffe0 == 0x2a0003e0: // mov
		if v := a.read(rm); wide && v.kind != valueUnknown {
			a.write(rd, v)
		} else {
			a.moveLow(rd, rm)
		}
	case word&0x1f000000 == 0x0a000000: // and, orr, eor, ands and their contraries
		a.write(rd, value{})
		if word>>29&3 == 3 {
			a.compare(comparison{})
		}
	case word&0x1f200000 == 0x0b000000: // add, sub
		shift, isLeft := word>>10&63, word>>22&3 == 0
		a.add(word, number, a.read(rn), a.shifted(rm, armWhole, shift, isLeft), false)
	case word&0x1fe00000 == 0x0b200000: // of a part of a register, and with the stack pointer
		a.add(word, number, a.regs[rn], a.shifted(rm, word>>13&7, word>>10&7, true), true)
	case word&0x1fe00000 == 0x1a400000: // ccmp, ccmn
		a.compare(comparison{})
	case word&0x1fe00000 == 0x1a000000: // with carry; flags
		if word>>10&63 == 0 {
			a.write(rd, value{})
		}
		a.compare(comparison{})
	case word&0xffff0000 == 0xdac10000: // signatures
	default:
		a.write(rd, value{})
	}
}

// armWhole extends nothing: all bits of a register.
const armWhole = 3

// shifted returns the value of a register, extended by an option and shifted left, as it is added to a register.
func (a armFrame) shifted(reg uint8, option, shift uint32, isLeft bool) value {
	v := a.read(reg)
	whole := option&3 == armWhole
	switch {
	case !isLeft && shift != 0:
		return value{}
	case v.kind == valueEntry:
		return v.extended(option, shift)
	case v.kind == valueConstant && whole:
		v.off <<= shift
		return v
	case whole && shift == 0:
		return v
	}
	return value{}
}

// extended returns an entry of a table as it is extended and shifted left.
func (v value) extended(option, shift uint32) value {
	f := tableFormat(v.reg)
	switch size := uint32(f & tableSize); {
	case option&3 < size || shift != 0 && shift != 2:
		return value{}
	case option&3 == size:
		f &^= tableSigned
		if option&4 != 0 {
			f |= tableSigned
		}
	}
	if shift == 2 {
		f |= tableWords
	}
	v.reg = uint8(f)
	return v
}

// add executes the addition or subtraction of v and w. mayBeSP is whether the register 31 is the stack pointer.
func (a armFrame) add(word, number uint32, v, w value, mayBeSP bool) {
	rd, rn, rm, wide := armTarget(word), armSource(word), uint8(word>>16&31), word>>31 != 0
	subtracts := word>>30&1 != 0
	sum := value{}
	switch {
	case !wide:
	case subtracts:
		if w.kind == valueConstant {
			sum = v.plus(-w.off)
		}
	case w.kind == valueConstant && v.kind != valueEntry:
		sum = v.plus(w.off)
	case v.kind == valueConstant && w.kind == valueAddress:
		sum = w.plus(v.off)
	case v.kind == valueConstant:
		sum = w.from(v)
	default:
		sum = v.from(w)
	}
	if word>>29&1 == 0 {
		if mayBeSP {
			a.writeSP(rd, sum, number)
		} else {
			a.write(rd, sum)
		}
		return
	}
	a.write(rd, sum)
	isPlain := word&0xffe0fc00 == 0xeb206000 || word&0xffe0fc00 == 0xeb000000 && rn != armZero
	a.compare(comparison{valid: isPlain && rd == armZero && rm != armZero, a: rn, b: rm})
}

// from returns the target of an entry of a table that is relative to the constant base.
func (v value) from(base value) value {
	distance := base.off - v.off
	if v.kind != valueEntry || base.kind != valueConstant || int64(int32(distance)) != distance {
		return value{}
	}
	v.kind, v.base = valueTarget, uint32(distance)
	return v
}

// system executes system instructions and calls.
func (a armFrame) system(word uint32) {
	switch {
	case word&0xffe00000 == 0xd5200000: // mrs, sysl
		a.write(armTarget(word), value{})
	case word&0xffe0001f == 0xd4000001: // svc
		a.write(0, value{})
	}
}

// scalable executes SVE instructions. Their vectors have a size known only at run time.
func (a armFrame) scalable(word, number uint32) {
	switch {
	case word&0xffa0f800 == 0x04205000: // addvl, addpl
		a.writeSP(armTarget(word), value{}, number)
	case word>>24 == 0x04, word>>24 == 0x05, word>>24 == 0x25: // to vectors, or to general registers
		a.write(armTarget(word), value{})
	}
}

// float executes instructions of floating-point and vector registers.
func (a armFrame) float(word uint32) {
	switch {
	case word&0x5f20fc00 == 0x1e200000: // conversions and moves
		if op := word >> 16 & 7; op == 2 || op == 3 || op == 7 {
			return // from a general register
		}
	case word&0x5f3e0000 == 0x1e180000: // conversions with a fixed point
	case word&0xbfe0ec00 == 0x0e002c00: // smov, umov
	default:
		return
	}
	a.write(armTarget(word), value{})
}

// memory executes loads and stores.
func (a armFrame) memory(word uint32) {
	rt, base := armTarget(word), a.regs[armSource(word)]
	switch {
	case word&0x3a000000 == 0x28000000:
		a.pair(word)
	case word&0x3a000000 == 0x38000000:
		a.single(word)
	case word&0x3b000000 == 0x18000000: // of a literal
		if isVector, isPrefetch := word>>26&1 != 0, word>>30 == 3; !isVector && !isPrefetch {
			a.write(rt, value{})
		}
	case word&0x3f000000 == 0x08000000: // exclusive, ordered and compared
		a.write(uint8(word>>16&31), value{})
		if word>>22&1 != 0 {
			a.write(rt, value{})
			a.write(uint8(word>>10&31), value{})
		}
		a.store(base, 16, value{})
	case word&0xbe000000 == 0x0c000000:
		a.vectors(word)
	case word&0x3f000000 == 0x19000000:
		a.other(word)
	}
}

// other executes loads and stores of tags, ordered ones, and copies of memory.
func (a armFrame) other(word uint32) {
	rt, rn, rs := armTarget(word), armSource(word), uint8(word>>16&31)
	off := int64(int32(word<<11) >> 23)
	switch {
	case word&0xff200000 == 0xd9200000: // tags
		const load = 0x00400000
		if word>>10&1 != 0 {
			a.set(rn, a.regs[rn].plus(16*off))
		} else if word&0x00c00c00 == load {
			a.write(rt, value{})
		}
	case word&0x00200c00 == 0: // ordered
		if word>>22&3 != 0 {
			a.write(rt, value{})
		} else {
			a.store(a.regs[rn].plus(off), 8, value{})
		}
	default:
		a.write(rt, value{})
		a.write(rs, value{})
		a.set(rn, value{})
	}
}

// pair executes loads and stores of two registers.
func (a armFrame) pair(word uint32) {
	const general, tagged = 2, 1 // sizes
	rt, rt2, rn := armTarget(word), uint8(word>>10&31), armSource(word)
	isVector, isLoad, size := word>>26&1 != 0, word>>22&1 != 0, word>>30
	scale, bytes := 2, int64(4) // of the distance, and of a register
	switch {
	case isVector:
		scale, bytes = 2+int(size), 4<<size
	case size >= general:
		scale, bytes = 3, 8
	case size == tagged && !isLoad:
		scale, bytes = 4, 8
	}
	off := int64(int32(word<<10)>>25) << scale
	const after, writesBack = 1, 1
	mode := word >> 23 & 3
	base := a.regs[rn]
	at := base.plus(off)
	if mode == after {
		at = base
	}
	second := at.plus(bytes)
	switch {
	case !isLoad:
		var v, w value
		if !isVector && bytes == 8 {
			v, w = a.read(rt), a.read(rt2)
		}
		a.store(at, bytes, v)
		a.store(second, bytes, w)
	case !isVector:
		var v, w value
		if size == general {
			v, w = a.load(at), a.load(second)
		}
		a.write(rt, v)
		a.write(rt2, w)
	}
	if mode&writesBack != 0 {
		a.set(rn, base.plus(off))
	}
}

// single executes loads and stores of a register.
func (a armFrame) single(word uint32) {
	rn := armSource(word)
	isVector, size, op := word>>26&1 != 0, int(word>>30), word>>22&3
	if isVector && op&2 != 0 {
		size = 4
	}
	base, mode := a.regs[rn], word>>10&3
	off := int64(int32(word<<11) >> 23)
	switch {
	case word>>24&1 != 0:
		a.access(word, base.plus(int64(word>>10&0xfff)<<size), size)
	case word>>21&1 == 0:
		const after, writesBack = 1, 1
		if mode == after {
			a.access(word, base, size)
		} else {
			a.access(word, base.plus(off), size)
		}
		if mode&writesBack != 0 {
			a.set(rn, base.plus(off))
		}
	case mode == 2:
		a.indexed(word, size)
	case mode == 0: // atomic
		a.write(armTarget(word), value{})
		a.store(base, 8, value{})
	default: // with a signed address
		a.write(armTarget(word), value{})
		if word>>11&1 != 0 {
			a.set(rn, value{})
		}
	}
}

// access loads or stores the register of an instruction. size is the logarithm of the number of bytes.
func (a armFrame) access(word uint32, at value, size int) {
	rt, isVector, op := armTarget(word), word>>26&1 != 0, word>>22&3
	const whole = 3
	switch {
	case isVector && op&1 != 0:
	case isVector, op == 0:
		v := value{}
		if !isVector && size == whole {
			v = a.read(rt)
		}
		a.store(at, 1<<size, v)
	case size == whole && op == 2: // prefetch
	case size == whole:
		a.write(rt, a.load(at))
	default:
		a.write(rt, value{})
	}
}

// indexed executes loads and stores with a register as the distance, such as that of an entry of a table.
func (a armFrame) indexed(word uint32, size int) {
	base, index, op := a.read(armSource(word)), uint8(word>>16&31), word>>22&3
	isScaled := word>>12&1 != 0 || size == 0
	if isVector := word>>26&1 != 0; isVector || op == 0 || base.kind != valueConstant || !isScaled {
		a.access(word, value{}, size)
		return
	}
	const whole = 3
	format := tableFormat(size)
	switch {
	case size == whole && op == 2: // prefetch
		return
	case size == whole:
		format |= tableAbsolute
	case op&2 != 0:
		format |= tableSigned
	}
	a.write(armTarget(word), a.tableEntry(uint64(base.off), index, format))
}

// vectors executes loads and stores of several vector registers, or of a part of them.
func (a armFrame) vectors(word uint32) {
	rn, op := armSource(word), word>>12&15
	var bytes int64
	if isSingle := word>>24&1 != 0; isSingle {
		registers, size := op>>1&1<<1|word>>21&1+1, op>>2
		switch {
		case size == 3: // to all parts
			size = word >> 10 & 3
		case size == 2 && word>>10&1 != 0:
			size = 3
		}
		bytes = int64(registers) << size
	} else {
		registers := [16]int64{0: 4, 2: 4, 4: 3, 6: 3, 7: 1, 8: 2, 10: 2}
		bytes = registers[op] * 8 << (word >> 30 & 1)
	}
	base := a.regs[rn]
	if isLoad := word>>22&1 != 0; !isLoad {
		a.store(base, bytes, value{})
	}
	if isAfter := word>>23&1 != 0; !isAfter {
		return
	}
	const byItsSize = armZero
	if word>>16&31 == byItsSize {
		a.set(rn, base.plus(bytes))
	} else {
		a.set(rn, value{})
	}
}
