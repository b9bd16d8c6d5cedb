package disasm

import (
	"debug/elf"
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
	decode := instruction.DecoderOf(machine)
	if decode == nil {
		return 0, Straight, false, fmt.Errorf("code for %v: %w", machine, ErrMachine)
	}
	in, ok := decode(code, 0)
	if !ok {
		size = 1
		if machine == elf.EM_AARCH64 {
			size = min(len(code), instructionARM)
		}
		return size, Straight, false, nil
	}
	switch in.Kind {
	case instruction.Plain, instruction.Stop:
	case instruction.ConditionalJump, instruction.CounterJump:
		flow = Conditional
	default:
		flow = Always
	}
	return in.Size, flow, true, nil
}
