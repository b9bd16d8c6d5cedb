package jumps

import "debug/elf"

// machine is the machine whose code can be counted, and breakpointLength the length of a breakpoint for
// code, in bytes.
const (
	machine          = elf.EM_AARCH64
	breakpointLength = 4
)
