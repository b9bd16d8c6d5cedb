package perfdata

import (
	"debug/elf"
	"math/bits"
	"runtime"

	"fulgur/internal/unwind"
)

// userState is the state of a thread in user space, from a sample of perf record
// --call-graph dwarf.
type userState struct {
	abi   uint64 // of the registers: abiNone if the thread is the kernel's
	mask  uint64 // the registers in regs
	regs  []byte // a word each
	stack []byte // the copied bytes from the stack pointer on
	// full is whether all of the requested bytes could be copied.
	full bool
}

// Values of enum perf_sample_regs_abi in include/uapi/linux/perf_event.h.
const (
	abiNone = 0
	abi64   = 2
)

// parseUser parses the registers and the stack of a sample of event a.
func parseUser(f *fields, a *attr) userState {
	u := userState{abi: f.u64(), mask: a.userRegs}
	if u.abi != abiNone {
		u.regs = f.take(8 * uint64(bits.OnesCount64(u.mask)))
	}
	size := f.u64()
	if size == 0 {
		return u
	}
	u.stack = f.take(size)
	copied := min(f.u64(), uint64(len(u.stack)))
	u.full = copied == uint64(len(u.stack))
	u.stack = u.stack[:copied]
	return u
}

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
func (u userState) registers(m elf.Machine) (regs unwind.Registers, ok bool) {
	var havePC, haveSP bool
	f := fields{b: u.regs}
	for mask := u.mask; mask != 0; mask &= mask - 1 {
		v, bit := f.u64(), bits.TrailingZeros64(mask)
		if f.short || bit >= len(perfRegisters[m]) {
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

// machineOf returns the machine that perf calls arch, as uname -m does. Without a name, it
// is this one's.
func machineOf(arch string) elf.Machine {
	if arch == "" {
		arch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	}
	return map[string]elf.Machine{"x86_64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64}[arch]
}
