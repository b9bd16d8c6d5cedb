#include "go_asm.h"
#include "textflag.h"

// See unistd_64.h and resource.h.
#define SYS_write 1
#define SYS_exit_group 231
#define SYS_prlimit64 302
#define RLIMIT_AS 9

// func start()
// The kernel jumps here, with argc at SP. There is no Go yet, so it uses no stack but its own.
TEXT ·start(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	SUBQ $16, SP // struct rlimit64
	MOVQ $SYS_prlimit64, AX
	XORL DI, DI
	MOVQ $RLIMIT_AS, SI
	XORL DX, DX
	MOVQ SP, R10
	SYSCALL
	MOVQ 0(SP), CX // the soft limit
	ADDQ $16, SP
	TESTQ AX, AX
	JNE enough // unknown
	MOVQ $const_addressSpace, AX
	CMPQ CX, AX
	JCC enough
	MOVQ $SYS_write, AX
	MOVQ $2, DI
	MOVQ ·tooLittleSpace+0(SB), SI
	MOVQ ·tooLittleSpace+8(SB), DX
	SYSCALL
	MOVQ $SYS_exit_group, AX
	MOVQ $1, DI
	SYSCALL
enough:
	JMP _rt0_amd64_linux(SB)
