package tracing

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	prstatus = 1          // NT_PRSTATUS: the general registers
	tls      = 0x401      // NT_ARM_TLS: the thread pointer
	mode32   = 1 << 4     // PSR_MODE32_BIT: AArch32 code
	svc      = 0xd4000001 // SVC #0, a system call
	length   = 4          // of an instruction, in bytes
)

// Foreign reports whether the thread runs 32-bit code.
func (r *Registers) Foreign() bool { return r.Pstate&mode32 != 0 }

// PC returns the program counter.
func (r *Registers) PC() uint64 { return r.Pc }

// SP returns the stack pointer.
func (r *Registers) SP() uint64 { return r.Sp }

// FP returns the frame pointer.
func (r *Registers) FP() uint64 { return r.Regs[29] }

// TP returns the thread pointer of thread tid, which has stopped, 0 if it cannot be read.
func (r *Registers) TP(tid int) (tp uint64) {
	local := unix.Iovec{Base: (*byte)(unsafe.Pointer(&tp)), Len: uint64(unsafe.Sizeof(tp))}
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETREGSET, uintptr(tid), tls, uintptr(unsafe.Pointer(&local)), 0, 0); errno != 0 {
		return 0
	}
	return tp
}

// Append appends the registers in the order of perf's register mask, see enum perf_event_arm_regs of the kernel, and
// returns the mask.
func (r *Registers) Append(b []byte) (regs []byte, mask uint64) {
	for _, v := range r.Regs { // x0 to x30
		b = binary.NativeEndian.AppendUint64(b, v)
	}
	b = binary.NativeEndian.AppendUint64(b, r.Sp)
	return binary.NativeEndian.AppendUint64(b, r.Pc), 1<<33 - 1
}

// Read reads the registers of a stopped tracee.
func (r *Registers) Read(tid int) error {
	return unix.PtraceGetRegSetArm64(tid, prstatus, (*unix.PtraceRegsArm64)(r))
}

// Call returns what the stop does to the system call that thread tid with the registers is in. Before a stop, the kernel
// moves a thread whose call restarts back to the instruction that makes it.
func (r *Registers) Call(tid int) SystemCall {
	var text [2 * length]byte
	if len(Read(tid, r.Pc-length, text[:])) < len(text) {
		return NoCall
	}
	before, at := binary.LittleEndian.Uint32(text[:]), binary.LittleEndian.Uint32(text[length:])
	switch {
	case before == svc && int64(r.Regs[0]) == -int64(unix.EINTR):
		return Interrupted
	case at == svc:
		return Restarts
	case before == svc:
		return Returns
	}
	return NoCall
}
