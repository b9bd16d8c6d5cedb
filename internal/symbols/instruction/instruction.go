// Package instruction finds the boundaries of x86-64 instructions and where they lead:
// their lengths, and the targets of jumps and calls. It does not know what other
// instructions do, and so knows all that have a regular encoding, including AVX-512.
//
// Callers write breakpoints at these boundaries, so [Decode] refuses what it is not sure
// of: invalid opcodes, encodings of single vendors, jumps whose operand size depends on
// the vendor, and far jumps.
//
// The format is described in Intel's Software Developer's Manual, volume 2: chapter 2, and
// the opcode maps of appendix A.
package instruction

// Kind is the effect of an instruction on the flow of control.
type Kind uint8

const (
	// Plain continues at the next instruction.
	Plain Kind = iota
	// ConditionalJump jumps to Target if a condition of the flags is true (Jcc).
	ConditionalJump
	// CounterJump jumps to Target if the register rcx says so (LOOP, JRCXZ).
	CounterJump
	// Jump jumps to Target.
	Jump
	// IndirectJump jumps to the address in Operand.
	IndirectJump
	// Call calls Target.
	Call
	// IndirectCall calls the address in a register or in memory.
	IndirectCall
	// Return returns to the caller.
	Return
	// Stop does not continue: HLT, UD2 and others that no program executes on purpose.
	Stop
)

// Instruction is a decoded instruction.
type Instruction struct {
	// Size is the number of bytes.
	Size int
	Kind Kind
	// Target is the address to which a direct jump or call leads.
	Target uint64
	// Condition is the condition code of a ConditionalJump, from 0 to 15.
	Condition uint8
	// Prefixed reports whether it has legacy prefixes. The kernel's uprobes refuse some
	// of them.
	Prefixed bool
	// Operand is the operand of an IndirectJump.
	Operand Operand
}

// Operand is a register, or an address in memory that holds a pointer: Base plus Index
// times Scale plus Displacement.
type Operand struct {
	// Memory reports whether the operand is in memory. A register is in Base.
	Memory bool
	// Base and Index are numbers of registers in the encoding of instructions, or
	// NoRegister.
	Base, Index uint8
	// Scale is 1, 2, 4 or 8.
	Scale uint8
	// Displacement is in bytes. If Relative, it is relative to the instruction.
	Displacement int64
	Relative     bool
}

// NoRegister is the number of no register.
const NoRegister = 0xff

// Ends reports whether an instruction of kind k never continues at the next instruction.
// Calls are expected to return.
func (k Kind) Ends() bool {
	switch k {
	case Jump, IndirectJump, Return, Stop:
		return true
	}
	return false
}

// maxSize is the size of the longest instruction, in bytes.
const maxSize = 15
