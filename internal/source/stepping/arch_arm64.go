package stepping

import "golang.org/x/sys/unix"

// The machine's instructions.
const maxInstruction = maxA64

func decode(text []byte, addr uint64) instruction { return decodeA64(text, addr) }

const (
	ntPrstatus = 1      // NT_PRSTATUS: the general registers
	mode32     = 1 << 4 // PSR_MODE32_BIT: AArch32 code
)

// registers is what a burst needs to know of a stopped thread.
type registers struct {
	pc uint64
	// foreign: the thread runs code of another width.
	foreign bool
	// trapping: the program steps itself, which it cannot here.
	trapping bool
	// interrupted: it was stopped in a system call that fails with EINTR.
	// The registers do not tell here whether it was in one.
	interrupted bool
	// restarting: it was stopped in one that begins again with the next
	// step. Here it is at the SVC instruction then, which is sensitive.
	restarting bool
}

func readRegisters(tid int) (registers, error) {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegSetArm64(tid, ntPrstatus, (*unix.PtraceRegsArm64)(&r)); err != nil {
		return registers{}, err
	}
	return registers{pc: r.Pc, foreign: r.Pstate&mode32 != 0}, nil
}

// readPC returns the address of the instruction that a stopped thread is at.
func readPC(tid int) (uint64, error) {
	r, err := readRegisters(tid)
	return r.pc, err
}
