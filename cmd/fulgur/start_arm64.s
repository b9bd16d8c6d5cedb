#include "go_asm.h"
#include "textflag.h"

// See asm-generic/unistd.h and asm-generic/resource.h.
#define SYS_write 64
#define SYS_exit_group 94
#define SYS_prlimit64 261
#define RLIMIT_AS 9

// func start()
// The kernel jumps here, with argc at RSP. There is no Go yet, so it uses no stack but its own.
TEXT ·start(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	SUB $16, RSP // struct rlimit64
	MOVD $0, R0
	MOVD $RLIMIT_AS, R1
	MOVD $0, R2
	MOVD RSP, R3
	MOVD $SYS_prlimit64, R8
	SVC
	MOVD 0(RSP), R4 // the soft limit
	ADD $16, RSP
	CBNZ R0, enough // unknown
	MOVD $const_addressSpace, R5
	CMP R5, R4
	BHS enough
	MOVD $2, R0
	MOVD ·tooLittleSpace+0(SB), R1
	MOVD ·tooLittleSpace+8(SB), R2
	MOVD $SYS_write, R8
	SVC
	MOVD $1, R0
	MOVD $SYS_exit_group, R8
	SVC
enough:
	B _rt0_arm64_linux(SB)
