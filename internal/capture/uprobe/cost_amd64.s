#include "textflag.h"

TEXT ·push(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ BP
	POPQ  BP
	RET

TEXT ·nopl3(SB), NOSPLIT|NOFRAME, $0-0
	BYTE $0x0f
	BYTE $0x1f
	BYTE $0x00
	RET

TEXT ·nopl5(SB), NOSPLIT|NOFRAME, $0-0
	BYTE $0x0f
	BYTE $0x1f
	BYTE $0x44
	BYTE $0x00
	BYTE $0x00
	RET

TEXT ·endbr(SB), NOSPLIT|NOFRAME, $0-0
	BYTE $0xf3
	BYTE $0x0f
	BYTE $0x1e
	BYTE $0xfa
	RET

TEXT ·sub(SB), NOSPLIT|NOFRAME, $0-0
	SUBQ $8, SP
	ADDQ $8, SP
	RET

TEXT ·xor(SB), NOSPLIT|NOFRAME, $0-0
	XORL AX, AX
	RET

DATA ·bodies+0(SB)/8, $·push(SB)
DATA ·bodies+8(SB)/8, $·nopl3(SB)
DATA ·bodies+16(SB)/8, $·nopl5(SB)
DATA ·bodies+24(SB)/8, $·endbr(SB)
DATA ·bodies+32(SB)/8, $·sub(SB)
DATA ·bodies+40(SB)/8, $·xor(SB)
GLOBL ·bodies(SB), NOPTR, $48
