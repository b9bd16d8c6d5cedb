#include "textflag.h"

TEXT ·nop(SB), NOSPLIT|NOFRAME, $0-0
	NOOP
	RET

TEXT ·add(SB), NOSPLIT|NOFRAME, $0-0
	ADD $1, R0, R0
	RET

DATA ·bodies+0(SB)/8, $·nop(SB)
DATA ·bodies+8(SB)/8, $·add(SB)
GLOBL ·bodies(SB), NOPTR, $16
