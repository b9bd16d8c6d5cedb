package stepping

// kind classifies instructions for stepping.
type kind uint8

const (
	// plain continues at the next instruction.
	plain kind = iota
	// repeating continues at the next instruction, or at itself (rep movs).
	repeating
	// jump always leaves: a jump, call or return.
	jump
	// conditional jumps to its target or continues at the next instruction.
	conditional
	// sensitive must not be stepped, see the package comment.
	sensitive
)

// instruction is an instruction, decoded as far as branches require.
type instruction struct {
	kind kind
	// next is the address of the next instruction. It is 0 unless the kind is
	// conditional.
	next uint64
	// target is the target of the branch, or 0 if it is not in the instruction.
	target uint64
}

// repeats reports whether the instruction, at addr, may lead to itself. Indirect jumps are assumed
// not to.
func (i instruction) repeats(addr uint64) bool { return i.kind == repeating || i.target == addr }

// step is the effect of an instruction that a thread executed.
type step uint8

const (
	straight step = iota // it continued
	taken                // it took a branch
	repeated             // it is still there: the next iteration of a string instruction
	moved                // it is where the instruction cannot have led
)

// step returns how executing the instruction at from led to to.
func (i instruction) step(from, to uint64) step {
	switch i.kind {
	case conditional:
		switch to {
		case i.next: // if that is also the target, they cannot be distinguished
			return straight
		case i.target:
			return taken
		}
		return moved
	case jump:
		if i.target != 0 && to != i.target {
			return moved
		}
		return taken
	default:
		switch {
		case to == from:
			return repeated
		case to-from <= maxInstruction:
			return straight
		}
		return moved
	}
}
