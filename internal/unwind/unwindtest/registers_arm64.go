package unwindtest

import (
	"debug/elf"

	"golang.org/x/sys/unix"

	"fulgur/internal/unwind"
)

// Machine is the machine of this computer's programs.
const Machine = elf.EM_AARCH64

// pcMask holds the address bits. The others may sign return addresses.
const pcMask = 1<<48 - 1

func fromPtrace(u *unix.PtraceRegs) unwind.Registers {
	regs := unwind.Registers{PC: u.Pc}
	copy(regs.R[:], append(u.Regs[:], u.Sp))
	return regs
}

// FramePointer returns the frame pointer.
func FramePointer(regs unwind.Registers) uint64 { return regs.R[29] }
