package events

import (
	"bytes"
	"debug/elf"
	"errors"

	"github.com/cilium/ebpf/btf"

	"fulgur/internal/symbols/elffile"
)

var errRedZone = errors.New("it is a NOP of 5 bytes: this kernel replaces such a NOP with a breakpoint by a call, which overwrites what the function keeps below its stack pointer")

// checkRedZone returns an error if a breakpoint at an instruction, which is not the entry of a function, would
// overwrite the function's red zone: the memory below the stack pointer. Since Linux 6.18, the kernel replaces
// NOPs of 5 bytes that have a uprobe by a call: see can_optimize of its arch/x86/kernel/uprobes.c.
func (p *Probe) checkRedZone(f *elffile.File, offset uint64) error {
	const size = 5
	if f.Machine() != elf.EM_X86_64 {
		return nil
	}
	code, err := f.Bytes(int64(offset), size, "instruction")
	if err != nil || !isNOP5(code) || !p.optimizesNOPs() {
		return nil // at the end of the file, the instruction is shorter
	}
	return errRedZone
}

// prefixes are the prefixes of x86 that NOPs can have.
var prefixes = []byte{0x66, 0x2e, 0x3e, 0x26, 0x36, 0x64, 0x65, 0xf2, 0xf3, 0x48}

// isNOP5 reports whether 5 bytes are a single instruction that does nothing.
func isNOP5(code []byte) bool {
	rest := code
	for len(rest) > 1 && bytes.IndexByte(prefixes, rest[0]) >= 0 {
		rest = rest[1:]
	}
	switch {
	case bytes.HasPrefix(rest, []byte{0x90}):
		return len(rest) == 1
	case bytes.HasPrefix(rest, []byte{0x0f, 0x1f}) && len(rest) > 2:
		return len(rest) == 2+operandSize(rest[2:])
	case bytes.HasPrefix(rest, []byte{0x8d}) && len(rest) > 1: // lea 0(%rsp), %rsp
		return len(rest) == 1+operandSize(rest[1:])
	}
	return false
}

// operandSize returns the number of bytes of the memory operand that begins with a ModR/M byte.
func operandSize(code []byte) int {
	size := 1
	mode, rm := code[0]>>6, code[0]&7
	if mode != 3 && rm == 4 {
		size++ // SIB
	}
	switch {
	case mode == 1:
		size++
	case mode == 2, mode == 0 && rm == 5:
		size += 4
	}
	return size
}

// optimizesNOPs reports whether the kernel replaces NOPs by calls, or whether that is unknown.
func (p *Probe) optimizesNOPs() bool {
	if p.types == nil {
		p.types = btf.NewCache()
	}
	types, err := p.types.Kernel()
	if err != nil {
		return true
	}
	var function *btf.Func
	err = types.TypeByName("arch_uprobe_optimize", &function)
	return !errors.Is(err, btf.ErrNotFound)
}
