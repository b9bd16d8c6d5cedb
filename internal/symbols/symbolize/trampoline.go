package symbolize

import (
	"bytes"
	"debug/elf"
)

// The code that a signal handler returns to, which has the kernel restore what
// the signal interrupted: rt_sigreturn(2), called as all C libraries, Go and
// arm64's vdso do. Debuggers rely on these very instructions.
var (
	signalReturnAMD64 = []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05} // mov $15, %rax; syscall
	signalReturnARM64 = []byte{0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}    // mov x8, #139; svc #0
)

// SignalReturn reports whether a signal handler returns to fileOffset. The
// kernel made that return address up. No call stands before it, so that the
// frame is exact, unlike all other callers: names are to be looked up at the
// address itself. (A walk by frame pointers then goes on with the function that
// called the interrupted one. Its address is one that a call returns to.)
//
// The code tells, since the C library's is a local symbol that strip takes.
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
