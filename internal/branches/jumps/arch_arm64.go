package jumps

import "debug/elf"

// machine is the machine whose code can be counted. hasUprobes is whether uprobes can count it. They
// cannot: under Linux 7.2 (in QEMU), they ended a test program, for a reason that is not known yet.
// breakpointLength is the length of a breakpoint for code, in bytes.
const (
	machine          = elf.EM_AARCH64
	hasUprobes       = false
	breakpointLength = 4
)

// The code of conditional and indirect jumps is needed only for uprobes.
var conditionalCode, indirectCode []byte

// hasShadowStacks is needed only for uprobes.
func hasShadowStacks() bool { return true }
