package unwind

import "debug/elf"

// Register numbers in DWARF, from the psABI of each machine.
const (
	amd64Base = 3 // rbx
	amd64FP   = 6 // rbp
	amd64SP   = 7 // rsp
	amd64RA   = 16

	arm64FP = 29
	arm64RA = 30 // the link register
	arm64SP = 31
)

// maxRegister bounds the register numbers in rules. It is the number of registers in
// [Registers].
const maxRegister = 32

// arch describes the differences between machines.
type arch struct {
	fp, sp, ra uint64
	// base is the psABI's base pointer. A function may locate its frame with it if it moves
	// the stack pointer by an amount known only at run time and leaves the frame pointer
	// unchanged. It is maxRegister if there is none.
	base uint64
	// scratch has a bit for each register that a call may change, except for link.
	scratch uint32
	// link is whether a call leaves the return address in the register ra. Otherwise the
	// call pushes it.
	link bool
	// ucontext describes the kernel's rt_sigframe: the offsets of registers from the
	// stack pointer seen by the signal trampoline.
	signal signalFrame
	// sigreturn is the code of the signal trampoline.
	sigreturn []byte
	// startContext is the beginning of the function to which makecontext(3) makes
	// coroutines return, and startContextSize its size in bytes. It is nil if the
	// function's description is correct.
	startContext     []byte
	startContextSize uint64
	// contextEnd is the code to which Boost's contexts return.
	contextEnd contextEnd
	// isa describes the instructions.
	isa *isa
}

// contextEnd describes code that calls _exit with 0.
type contextEnd struct {
	// code is the code without its offsets. mask has the bits that must match, which are all of
	// the first fixed bytes.
	code, mask []byte
	fixed      int
	// first is the number of bytes before the first instruction, and landing an instruction that
	// may be before it, as a target of indirect jumps.
	first   int
	landing []byte
}

// signalFrame has offsets in bytes.
type signalFrame struct {
	// regs lists the registers in the eight-byte words from first on.
	first int64
	regs  []uint8
	// fp, sp and pc are the offsets in a DWARF description of the frame.
	fp, sp, pc int64
}

// pcRegister stands for the program counter in signalFrame.regs.
const pcRegister = maxRegister

var amd64 = &arch{
	fp: amd64FP, sp: amd64SP, ra: amd64RA, base: amd64Base,
	scratch: 0x0f37, // rax, rdx, rcx, rsi, rdi, r8 to r11
	// struct ucontext: uc_flags, uc_link and uc_stack, 40 bytes together,
	// then struct sigcontext.
	signal: signalFrame{
		first: 40,
		//            r8 … r15                       rdi rsi rbp rbx rdx rax rcx rsp rip
		regs: []uint8{8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, pcRegister},
		fp:   120, sp: 160, pc: 168,
	},
	sigreturn: []byte{0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05}, // mov $15, %rax; syscall
	// glibc's: mov %rbx, %rsp; mov (%rsp), %rdi; test %rdi, %rdi.
	startContext: []byte{0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff}, startContextSize: 26,
	// xor %rdi, %rdi; call _exit; hlt. It may begin with endbr64.
	contextEnd: contextEnd{
		code:  []byte{0x48, 0x31, 0xff, 0xe8, 0, 0, 0, 0, 0xf4},
		mask:  []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff},
		fixed: 4, landing: []byte{0xf3, 0x0f, 0x1e, 0xfa},
	},
	isa: amd64ISA,
}

var arm64 = &arch{
	fp: arm64FP, sp: arm64SP, ra: arm64RA, base: maxRegister, link: true,
	scratch: 0x3ffff, // x0 to x17
	// struct rt_sigframe: siginfo, 128 bytes, then struct ucontext, whose
	// sigcontext begins at 176 with the fault address.
	signal: signalFrame{
		first: 312,
		regs: []uint8{
			0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
			16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30,
			arm64SP, pcRegister,
		},
		fp: 544, sp: 560, pc: 568,
	},
	sigreturn: []byte{0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4}, // mov x8, #139; svc #0
	// ret; mov x0, #0; bl _exit.
	contextEnd: contextEnd{
		code:  []byte{0xc0, 0x03, 0x5f, 0xd6, 0x00, 0x00, 0x80, 0xd2, 0, 0, 0, 0x94},
		mask:  []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xfc},
		fixed: 8, first: 4,
	},
	isa: arm64ISA,
}

// archOf returns nil for a machine whose stacks cannot be walked.
func archOf(m elf.Machine) *arch {
	switch m {
	case elf.EM_X86_64:
		return amd64
	case elf.EM_AARCH64:
		return arm64
	}
	return nil
}
