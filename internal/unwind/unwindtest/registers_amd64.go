package unwindtest

import (
	"debug/elf"

	"golang.org/x/sys/unix"

	"fulgur/internal/unwind"
)

// Machine is the machine of this computer's programs.
const Machine = elf.EM_X86_64

// pcMask holds the address bits.
const pcMask = 1<<64 - 1

func fromPtrace(u *unix.PtraceRegs) unwind.Registers {
	regs := unwind.Registers{PC: u.Rip, TP: u.Fs_base}
	copy(regs.R[:], []uint64{
		u.Rax, u.Rdx, u.Rcx, u.Rbx, u.Rsi, u.Rdi, u.Rbp, u.Rsp,
		u.R8, u.R9, u.R10, u.R11, u.R12, u.R13, u.R14, u.R15,
	})
	return regs
}

// FramePointer returns the frame pointer.
func FramePointer(regs unwind.Registers) uint64 { return regs.R[6] }
