package events

import "strconv"

// Offsets in struct user_pt_regs of the kernel's arch/arm64/include/uapi/asm/ptrace.h,
// the context of programs at functions.
const (
	stackRegister  = 31 * 8 // sp
	returnRegister = 0      // x0
	firstOnStack   = 0
)

var argumentRegisters = []uint32{0, 1 * 8, 2 * 8, 3 * 8, 4 * 8, 5 * 8, 6 * 8, 7 * 8}

// goRegisters are the registers with integers and pointers among the arguments of Go's functions,
// x0 to x15: https://go.dev/s/regabi.
var goRegisters = []uint32{
	0, 1 * 8, 2 * 8, 3 * 8, 4 * 8, 5 * 8, 6 * 8, 7 * 8, 8 * 8, 9 * 8, 10 * 8, 11 * 8, 12 * 8, 13 * 8, 14 * 8, 15 * 8,
}

// register returns the offset in struct user_pt_regs of a register as the assembler
// writes it, such as x0, w1 or sp.
func register(name string) (uint32, bool) {
	if name == "sp" {
		return stackRegister, true
	}
	if len(name) < 2 || name[0] != 'x' && name[0] != 'w' {
		return 0, false
	}
	n, err := strconv.ParseUint(name[1:], 10, 8)
	return uint32(n) * 8, err == nil && n <= 30
}
