package jumps

import "debug/elf"

// machine is the machine whose code can be counted, and breakpointLength the length of a breakpoint for
// code, in bytes.
const (
	machine          = elf.EM_AARCH64
	breakpointLength = 4
)

// Instructions whose hits cost as much as those of conditional and indirect jumps: nop, since the kernel
// simulates all of them.
var conditionalCode, indirectCode = nop, nop

var nop = []byte{0x1f, 0x20, 0x03, 0xd5}
