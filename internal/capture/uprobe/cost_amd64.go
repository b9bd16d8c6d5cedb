package uprobe

import "bytes"

// The classes that kernels treat differently; see arch/x86/kernel/uprobes.c.
const (
	emulated class = iota // push, nop, and relative jumps and calls
	longNop               // of 0f 1f, emulated since Linux 6.18
	nop5                  // the long one of 5 bytes, which these kernels can replace by a system call
	marker                // endbr64
	reserve               // sub $imm8, %rsp
	other
	classes
)

// classOf returns the class of an instruction.
func classOf(code []byte) class {
	is := func(prefix ...byte) bool { return bytes.HasPrefix(code, prefix) }
	switch {
	case isEmulated(code):
		return emulated
	case is(0x0f, 0x1f, 0x44, 0x00, 0x00):
		return nop5
	case is(0x0f, 0x1f), is(0x66, 0x0f, 0x1f):
		return longNop
	case is(0xf3, 0x0f, 0x1e, 0xfa):
		return marker
	case is(0x48, 0x83, 0xec):
		return reserve
	}
	return other
}

// isEmulated reports whether all kernels emulate an instruction.
func isEmulated(code []byte) bool {
	if after, ok := bytes.CutPrefix(code, []byte{0x41}); ok { // REX.B
		return len(after) > 0 && after[0]&^7 == 0x50
	}
	if after := bytes.TrimLeft(code, "\x66"); len(after) > 0 && after[0] == 0x90 {
		return true
	}
	if after, ok := bytes.CutPrefix(code, []byte{0x0f}); ok {
		return len(after) > 0 && after[0]&^0xf == 0x80 // a conditional jump
	}
	if len(code) == 0 {
		return false
	}
	switch first := code[0]; first {
	case 0xe8, 0xe9, 0xeb:
		return true
	default:
		return first&^7 == 0x50 || first&^0xf == 0x70 // push, or a conditional jump
	}
}

// samples are functions that begin with an instruction of each class, and bodies are the
// addresses of their code.
var samples = [classes]func(){push, nopl3, nopl5, endbr, sub, xor}

var bodies [classes]uintptr

func push()
func nopl3()
func nopl5()
func endbr()
func sub()
func xor()
