package stepping

import (
	"golang.org/x/sys/unix"

	"fulgur/internal/linux/tracing"
)

// The machine's instructions.
const maxInstruction = maxA64

func decode(text []byte, addr uint64) instruction { return decodeA64(text, addr) }

// losesSteps means that a thread may run on after a step, without a trap. If an instruction has a
// uprobe, the kernel executes a copy of it, and does not resume stepping afterwards
// (arch_uprobe_post_xol).
const losesSteps = true

const (
	ntPrstatus = 1      // NT_PRSTATUS: the general registers
	mode32     = 1 << 4 // PSR_MODE32_BIT: AArch32 code
)

// registers is the part of a stopped thread's registers that a burst needs.
type registers struct {
	pc uint64
	// foreign: the thread runs 32-bit code.
	foreign bool
	// trapping: the program single-steps itself, which is not possible here.
	trapping bool
	// interrupted: the stop makes a system call fail with EINTR.
	interrupted bool
	// restarting: the stop interrupted a system call that the next step restarts. The
	// thread is then at the SVC instruction, which is sensitive.
	restarting bool
}

func readRegisters(tid int) (registers, error) {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegSetArm64(tid, ntPrstatus, (*unix.PtraceRegsArm64)(&r)); err != nil {
		return registers{}, err
	}
	regs := registers{pc: r.Pc, foreign: r.Pstate&mode32 != 0}
	regs.interrupted = (*tracing.Registers)(&r).Call(tid) == tracing.Interrupted
	return regs, nil
}

// readPC returns the program counter of a stopped thread.
func readPC(tid int) (uint64, error) {
	r, err := readRegisters(tid)
	return r.pc, err
}
