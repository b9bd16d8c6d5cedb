package unwindtest

import (
	"debug/elf"

	"golang.org/x/sys/unix"

	"fulgur/internal/unwind"
)

// Machine is that of this machine's programs.
const Machine = elf.EM_AARCH64

func fromPtrace(u *unix.PtraceRegs) unwind.Registers {
	regs := unwind.Registers{PC: u.Pc}
	copy(regs.R[:], append(u.Regs[:], u.Sp))
	return regs
}

// FramePointer returns the frame pointer.
func FramePointer(regs unwind.Registers) uint64 { return regs.R[29] }
