package stepping

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/tracing"
)

// The machine's instructions.
const maxInstruction = maxX86

func decode(text []byte, addr uint64) instruction { return decodeX86(text, addr) }

// losesSteps means that a thread may run on after a step, without a trap.
const losesSteps = false

const (
	userCode64 = 0x33   // __USER_CS: the code segment of 64-bit code
	trapFlag   = 1 << 8 // X86_EFLAGS_TF
)

// registers is the part of a stopped thread's registers that a burst needs.
type registers struct {
	pc uint64
	// foreign: the thread runs 32-bit code.
	foreign bool
	// trapping: the program single-steps itself.
	trapping bool
	// interrupted: the stop makes a system call fail with EINTR.
	interrupted bool
	// restarting: the stop interrupted a system call that the next step restarts.
	restarting bool
}

func readRegisters(tid int) (registers, error) {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &r); err != nil {
		return registers{}, err
	}
	call := (*tracing.Registers)(&r).Call(tid)
	return registers{
		pc:          r.Rip,
		foreign:     r.Cs != userCode64,
		trapping:    r.Eflags&trapFlag != 0,
		interrupted: call == tracing.Interrupted,
		restarting:  call == tracing.Restarts,
	}, nil
}

// readPC returns the program counter of a stopped thread.
func readPC(tid int) (uint64, error) {
	var pc uint64
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_PEEKUSR, uintptr(tid),
		unsafe.Offsetof(unix.PtraceRegs{}.Rip), uintptr(unsafe.Pointer(&pc)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return pc, nil
}
