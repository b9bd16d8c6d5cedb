package disasm

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"fulgur/internal/symbols/instruction"
)

// Flow is the effect of an instruction on the flow of control.
type Flow uint8

const (
	// Straight means that the next instruction follows.
	Straight Flow = iota
	// Conditional means that the instruction may branch.
	Conditional
	// Always means that the instruction always branches: a jump, a call or a return.
	Always
)

// Step decodes the first instruction of code, which is not empty, and returns its size
// in bytes. known is false for bytes that are not a known instruction; the size is then 1,
// or at most 4 on arm64. The error wraps [ErrMachine] for machines other than x86-64 and
// arm64.
func Step(machine elf.Machine, code []byte) (size int, flow Flow, known bool, err error) {
	switch machine {
	case elf.EM_X86_64:
		size, flow, known = stepX86(code)
	case elf.EM_AARCH64:
		size, flow, known = stepARM(code)
	default:
		err = fmt.Errorf("code for %v: %w", machine, ErrMachine)
	}
	return size, flow, known, err
}

func stepX86(code []byte) (size int, flow Flow, known bool) {
	in, ok := instruction.Decode(code, 0)
	if !ok {
		return 1, Straight, false
	}
	switch in.Kind {
	case instruction.Plain, instruction.Stop:
	case instruction.ConditionalJump, instruction.CounterJump:
		flow = Conditional
	default:
		flow = Always
	}
	return in.Size, flow, true
}

// stepARM classifies an instruction by the encodings of "Branches, Exception Generating
// and System instructions" (Arm Architecture Reference Manual, C4.1).
func stepARM(code []byte) (size int, flow Flow, known bool) {
	if len(code) < instructionARM {
		return len(code), Straight, false
	}
	word := binary.LittleEndian.Uint32(code)
	switch {
	case word&0x7c000000 == 0x14000000, // b, bl
		word&0xfe000000 == 0xd6000000: // br, blr, ret, eret, also with pointer authentication
		flow = Always
	case word&0xff000000 == 0x54000000, // b.cond
		word&0x7c000000 == 0x34000000: // cbz, cbnz, tbz, tbnz
		flow = Conditional
	}
	return instructionARM, flow, true
}
