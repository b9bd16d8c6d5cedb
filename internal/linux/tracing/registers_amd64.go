package tracing

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const (
	code64 = 0x33 // __USER_CS: the code segment of 64-bit code

	// ERESTARTSYS to ERESTART_RESTARTBLOCK of the kernel's linux/errno.h.
	restartFirst, restartLast = 512, 516
)

// Foreign reports whether the thread runs 32-bit code.
func (r *Registers) Foreign() bool { return r.Cs != code64 }

// PC returns the program counter.
func (r *Registers) PC() uint64 { return r.Rip }

// SP returns the stack pointer.
func (r *Registers) SP() uint64 { return r.Rsp }

// FP returns the frame pointer.
func (r *Registers) FP() uint64 { return r.Rbp }

// TP returns the thread pointer of thread tid with the registers, 0 if it cannot be read.
func (r *Registers) TP(int) uint64 { return r.Fs_base }

// Append appends the registers in the order of perf's register mask, see enum perf_event_x86_regs of the kernel, and
// returns the mask.
func (r *Registers) Append(b []byte) (regs []byte, mask uint64) {
	for _, v := range []uint64{
		r.Rax, r.Rbx, r.Rcx, r.Rdx, r.Rsi, r.Rdi, r.Rbp, r.Rsp, r.Rip, r.Eflags, r.Cs, r.Ss,
		r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15,
	} {
		b = binary.NativeEndian.AppendUint64(b, v)
	}
	return b, 0xff0fff // without ds, es, fs and gs
}

// Read reads the registers of a stopped tracee.
func (r *Registers) Read(tid int) error { return unix.PtraceGetRegs(tid, (*unix.PtraceRegs)(r)) }

// Call returns what the stop does to the system call that the thread with the registers is in.
func (r *Registers) Call(int) SystemCall {
	result := int64(r.Rax)
	switch inCall := int64(r.Orig_rax) >= 0; {
	case !inCall:
		return NoCall
	case result == -int64(unix.EINTR):
		return Interrupted
	case result <= -restartFirst && result >= -restartLast:
		return Restarts
	}
	return Returns
}
