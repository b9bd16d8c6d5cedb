package stepping

import (
	"bytes"
	"encoding/binary"
)

// maxX86 is the length of the longest x86 instruction, in bytes.
const maxX86 = 15

// decodeX86 decodes the 64-bit instruction at the start of text, which is at address
// addr, only as far as its kind requires. Opcodes: Intel SDM volume 2, appendix A. An
// instruction that text truncates is sensitive, since it must not be stepped.
func decodeX86(text []byte, addr uint64) instruction {
	n := 0
	for n < len(text) && isPrefix(text[n]) {
		n++
	}
	if n < len(text) && text[n]&0xf0 == 0x40 { // REX
		n++
	}
	op := opcode{text, n}
	b := op.at(0)
	switch {
	case n >= maxX86 || n >= len(text):
		return instruction{kind: sensitive}
	case b == 0x0f:
		return op.twoByte(addr)
	case b >= 0x70 && b <= 0x7f, b >= 0xe0 && b <= 0xe3: // Jcc, LOOPcc, JRCXZ
		return op.branch(conditional, addr, 1, 1)
	case b == 0xeb: // JMP rel8
		return op.branch(jump, addr, 1, 1)
	case b == 0xe8, b == 0xe9: // CALL, JMP rel32
		return op.branch(jump, addr, 1, 4)
	case b == 0xc2, b == 0xc3: // RET
		return instruction{kind: jump}
	case b == 0xca, b == 0xcb: // RETF, which may switch to 32-bit code
		return instruction{kind: sensitive}
	case b == 0xff:
		switch op.reg(1) {
		case 2, 4: // CALL, JMP r/m
			return instruction{kind: jump}
		case 3, 5: // CALLF, JMPF
			return instruction{kind: sensitive}
		}
	case b == 0x9c, b == 0x9d, b == 0xcf: // PUSHF, POPF, IRET
		return instruction{kind: sensitive}
	case b == 0xcc, b == 0xcd, b == 0xf1: // INT3, INT, INT1
		return instruction{kind: sensitive}
	case b == 0x8e && op.reg(1) == 2: // MOV SS: inhibits the trap after it
		return instruction{kind: sensitive}
	case b >= 0xa4 && b <= 0xa7, b >= 0xaa && b <= 0xaf: // string instructions
		if bytes.IndexByte(text[:n], 0xf2) >= 0 || bytes.IndexByte(text[:n], 0xf3) >= 0 {
			return instruction{kind: repeating}
		}
	case b == 0xc7 && op.at(1) == 0xf8: // XBEGIN
		return instruction{kind: sensitive}
	}
	return instruction{kind: plain}
}

// isPrefix reports whether b is a legacy prefix.
func isPrefix(b byte) bool {
	switch b {
	case 0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65:
		return true
	}
	return false
}

// opcode is an instruction and the offset after its prefixes.
type opcode struct {
	text []byte
	n    int
}

// at returns the i-th byte after the prefixes, or 0 beyond the end.
func (o opcode) at(i int) byte {
	if o.n+i < len(o.text) {
		return o.text[o.n+i]
	}
	return 0
}

// reg returns the middle field of a ModRM byte.
func (o opcode) reg(i int) byte { return o.at(i) >> 3 & 7 }

func (o opcode) twoByte(addr uint64) instruction {
	switch b := o.at(1); {
	case b >= 0x80 && b <= 0x8f: // Jcc rel32
		return o.branch(conditional, addr, 2, 4)
	case b == 0x05, b == 0x34: // SYSCALL, SYSENTER
		return instruction{kind: sensitive}
	}
	return instruction{kind: plain}
}

// branch returns an instruction with a displacement of size bytes, at bytes after the
// prefixes.
func (o opcode) branch(k kind, addr uint64, at, size int) instruction {
	end := o.n + at + size
	if end > len(o.text) {
		return instruction{kind: sensitive}
	}
	displacement := int64(int8(o.text[end-1]))
	if size == 4 {
		displacement = int64(int32(binary.LittleEndian.Uint32(o.text[end-4:])))
	}
	i := instruction{kind: k, target: addr + uint64(end) + uint64(displacement)}
	if k == conditional {
		i.next = addr + uint64(end)
	}
	return i
}
