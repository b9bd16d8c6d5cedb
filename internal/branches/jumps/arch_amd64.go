package jumps

import (
	"debug/elf"
	"os"
	"regexp"
)

// machine is the machine whose code can be counted. hasUprobes is whether uprobes can count it.
// breakpointLength is the length of a breakpoint for code, in bytes.
const (
	machine          = elf.EM_X86_64
	hasUprobes       = true
	breakpointLength = 8
)

// je and jmp *%rax, to measure the cost of a hit: it is the same for all conditional jumps, and for all
// indirect ones.
var conditionalCode, indirectCode = []byte{0x74, 0x00}, []byte{0xff, 0xe0}

// hasShadowStacks reports whether programs on this machine may have shadow stacks.
func hasShadowStacks() bool {
	info, err := os.ReadFile("/proc/cpuinfo")
	return err != nil || regexp.MustCompile(`(?m)^flags\b.*\buser_shstk\b`).Match(info)
}
