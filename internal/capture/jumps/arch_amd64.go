package jumps

import "debug/elf"

// machine is the machine whose code can be counted, and breakpointLength the length of a breakpoint for
// code, in bytes.
const (
	machine          = elf.EM_X86_64
	breakpointLength = 8
)
