package events

import "strings"

// Offsets in struct pt_regs of the kernel's arch/x86/include/asm/ptrace.h, the context of
// programs at functions. Arguments are passed as the System V ABI defines, in the kernel
// too.
const (
	stackRegister  = 19 * 8 // rsp
	returnRegister = 10 * 8 // rax
	firstOnStack   = 8      // above the return address
)

var argumentRegisters = []uint32{14 * 8, 13 * 8, 12 * 8, 11 * 8, 9 * 8, 8 * 8} // rdi rsi rdx rcx r8 r9

// goRegisters are the registers with integers and pointers among the arguments of Go's functions:
// https://go.dev/s/regabi. rax rbx rcx rdi rsi r8 r9 r10 r11
var goRegisters = []uint32{10 * 8, 5 * 8, 11 * 8, 14 * 8, 13 * 8, 9 * 8, 8 * 8, 7 * 8, 6 * 8}

// words are the words of struct pt_regs by the register's 64-bit name without its r.
var words = map[string]uint32{
	"15": 0, "14": 1, "13": 2, "12": 3, "bp": 4, "bx": 5, "11": 6, "10": 7, "9": 8, "8": 9,
	"ax": 10, "cx": 11, "dx": 12, "si": 13, "di": 14, "ip": 16, "sp": 19,
}

// register returns the offset in struct pt_regs of a register as the assembler writes it,
// such as %rdi, %edi, %r10d or %al.
func register(name string) (uint32, bool) {
	name, ok := strings.CutPrefix(name, "%")
	if !ok || name == "" {
		return 0, false
	}
	base := strings.TrimLeft(name, "re")
	switch {
	case strings.HasPrefix(name, "r") && len(name) > 1 && name[1] >= '0' && name[1] <= '9':
		base = strings.TrimRight(name[1:], "dwb")
	case len(base) == 2 && base[1] == 'l':
		base = base[:1] + "x" // al
	case len(base) == 3 && base[2] == 'l':
		base = base[:2] // sil
	}
	word, ok := words[base]
	return word * 8, ok
}
