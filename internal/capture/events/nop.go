package events

import (
	"bytes"
	"debug/elf"
	"errors"
	"sync"

	"github.com/cilium/ebpf/btf"

	"fulgur/internal/symbols/elffile"
)

var errNOP = errors.New("it is a NOP of 5 bytes, which this kernel replaces by a call if a breakpoint is there: the call overwrites data below the stack pointer, and ends children after a fork")

// CheckNOP returns an error if the kernel would replace an instruction that has a breakpoint by a call. Since
// Linux 6.18, it replaces NOPs of 5 bytes: see can_optimize of its arch/x86/kernel/uprobes.c. The call overwrites
// the red zone of a function. A child after a fork has the call, but not the code that it calls.
func CheckNOP(f *elffile.File, offset uint64) error {
	const size = 5
	if f.Machine() != elf.EM_X86_64 {
		return nil
	}
	// At the end of the file, the instruction is shorter.
	if code, err := f.Bytes(int64(offset), size, "instruction"); err == nil && isNOP5(code) && optimizesNOPs() {
		return errNOP
	}
	return nil
}

// isNOP5 reports whether 5 bytes are a single instruction that does nothing.
func isNOP5(code []byte) bool {
	rest, rex := code, byte(0)
	for len(rest) > 1 && bytes.IndexByte([]byte{0x66, 0x2e, 0x3e, 0x26, 0x36, 0x64, 0x65, 0xf2, 0xf3}, rest[0]) >= 0 {
		rest = rest[1:]
	}
	if rest[0]&0xf0 == 0x40 && len(rest) > 1 {
		rex, rest = rest[0], rest[1:]
	}
	const extendsBase, wide = 1, 8
	switch {
	case rest[0] == 0x90:
		return len(rest) == 1 && rex&extendsBase == 0
	case bytes.HasPrefix(rest, []byte{0x0f, 0x1f}) && len(rest) > 2:
		return len(rest) == 2+operandSize(rest[2:])
	case rest[0] == 0x8d && rex&wide != 0 && len(rest) > 2: // lea 0(%register), %register
		to := rest[1]>>3&7 | rex&4<<1
		base := rest[1]&7 | rex&extendsBase<<3
		if rest[1]&7 == 4 {
			const noIndex = 4
			if rest[2]>>3&7 != noIndex || rex&2 != 0 {
				return false
			}
			base = rest[2]&7 | rex&extendsBase<<3
		}
		mode := rest[1] >> 6
		return len(rest) == 1+operandSize(rest[1:]) && to == base && (mode == 0 && base&7 != 5 || mode == 1 && rest[len(rest)-1] == 0)
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
var optimizesNOPs = sync.OnceValue(func() bool {
	types, err := btf.NewCache().Kernel()
	if err != nil {
		return true
	}
	var function *btf.Func
	return !errors.Is(types.TypeByName("arch_uprobe_optimize", &function), btf.ErrNotFound)
})
