package stepping

// kind is what matters of an instruction to who steps over it.
type kind uint8

const (
	// plain goes on to the next instruction, or is repeated (rep movs).
	plain kind = iota
	// jump leaves for elsewhere in any case: a jump, a call or a return.
	jump
	// conditional jumps to its target or goes on to the next instruction.
	conditional
	// sensitive must not be stepped over, see the package's comment.
	sensitive
)

// instruction is one that was decoded as far as branches want it.
type instruction struct {
	kind kind
	// next is the address of the instruction behind. It is 0 unless the kind
	// is conditional.
	next uint64
	// target is where the branch leads, 0 if that is not in the instruction.
	target uint64
}

// step is what became of a thread that executed one instruction.
type step uint8

const (
	straight step = iota // it went on
	taken                // it took a branch
	repeated             // it is still there: a string instruction's next round
	moved                // it is where the instruction could not have brought it
)

// step says how a thread at from came to be at to by this instruction.
func (i instruction) step(from, to uint64) step {
	switch i.kind {
	case conditional:
		switch to {
		case i.next: // also if that is the target: nobody can tell
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
