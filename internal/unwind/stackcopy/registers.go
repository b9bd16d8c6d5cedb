package stackcopy

import (
	"debug/elf"
	"math/bits"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/unwind"
)

// perfRegisters maps the bits of perf's register masks to DWARF registers: enum
// perf_event_x86_regs and perf_event_arm_regs in arch/*/include/uapi/asm/perf_regs.h of the
// kernel.
var perfRegisters = map[elf.Machine][]uint8{
	//            ax bx cx dx si di bp sp ip            flags to gs               r8 … r15
	elf.EM_X86_64: {0, 3, 2, 1, 4, 5, 6, 7, counter, other, other, other, other, other, other, other, 8, 9, 10, 11, 12, 13, 14, 15},
	elf.EM_AARCH64: {
		0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
		16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, counter,
	},
}

// In perfRegisters, counter stands for the program counter, and other for registers that do
// not matter.
const (
	counter = 0xfe
	other   = 0xff
)

// stackPointer is the stack pointer's DWARF number by machine.
var stackPointer = map[elf.Machine]uint8{elf.EM_X86_64: 7, elf.EM_AARCH64: 31}

// registers returns the registers for the walker of a machine. ok is false if the program
// counter or the stack pointer is missing.
func registers(u perfevent.UserState, m elf.Machine) (regs unwind.Registers, ok bool) {
	var havePC, haveSP bool
	f := perfevent.Fields{B: u.Regs}
	for mask := u.Mask; mask != 0; mask &= mask - 1 {
		v, bit := f.U64(), bits.TrailingZeros64(mask)
		if f.Short || bit >= len(perfRegisters[m]) {
			break
		}
		switch to := perfRegisters[m][bit]; to {
		case counter:
			regs.PC, havePC = v, true
		case other:
		default:
			regs.R[to] = v
			haveSP = haveSP || to == stackPointer[m]
		}
	}
	return regs, havePC && haveSP
}
