package symbolize

import (
	"bytes"
	"debug/elf"
)

// The code to which a signal handler returns. It makes the kernel restore the interrupted
// state: a call of rt_sigreturn(2), in the form used by all C libraries, Go and arm64's vDSO.
// Debuggers rely on these exact instructions.
var (
	signalReturnAMD64 = []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05} // mov $15, %rax; syscall
	signalReturnARM64 = []byte{0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}    // mov x8, #139; svc #0
)

// SignalReturn reports whether fileOffset is the return address of signal handlers. The
// kernel creates this return address, so no call precedes it. Unlike other caller frames,
// this frame is exact, and its name is the name at the address itself. (A walk by frame
// pointers continues with the caller of the interrupted function, whose address is a return
// address.)
//
// SignalReturn compares the code, because the C library's symbol for it is local, and strip
// removes it.
func (e *ELF) SignalReturn(fileOffset uint64) bool {
	var want []byte
	switch e.file.Machine() {
	case elf.EM_X86_64:
		want = signalReturnAMD64
	case elf.EM_AARCH64:
		want = signalReturnARM64
	}
	if want == nil || fileOffset > uint64(e.file.Size()) {
		return false
	}
	var code [9]byte
	got := code[:len(want)]
	return e.file.ReadFull(got, int64(fileOffset), "code") == nil && bytes.Equal(got, want)
}
