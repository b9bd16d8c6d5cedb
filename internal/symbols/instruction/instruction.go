// Package instruction decodes the lengths of x86-64 instructions, and the targets of jumps
// and calls. It does not interpret other instructions, so it covers all with a regular
// encoding, including AVX-512.
//
// Callers write breakpoints at instruction boundaries, so [Decode] rejects any doubtful
// instruction: invalid opcodes, encodings of a single vendor, jumps whose operand size
// depends on the vendor, and far jumps.
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
	// CounterJump jumps to Target depending on the register rcx (LOOP, JRCXZ).
	CounterJump
	// Jump jumps to Target.
	Jump
	// IndirectJump jumps to the address in Operand.
	IndirectJump
	// Call calls Target.
	Call
	// IndirectCall calls the address in Operand.
	IndirectCall
	// Return returns to the caller.
	Return
	// Stop does not continue: HLT, UD2 and other instructions that programs do not execute in
	// normal operation.
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
	// Prefixed is whether the instruction has legacy prefixes. The kernel's uprobes refuse
	// some of them.
	Prefixed bool
	// Operand is the operand of an IndirectJump or IndirectCall.
	Operand Operand
}

// Operand is a register, or an address in memory that holds a pointer: Base plus Index
// times Scale plus Displacement.
type Operand struct {
	// Memory is whether the operand is in memory. Otherwise it is the register Base.
	Memory bool
	// Base and Index are the numbers of registers in the instruction encoding, or NoRegister.
	Base, Index uint8
	// Scale is 1, 2, 4 or 8.
	Scale uint8
	// Displacement is in bytes. If Relative, it is relative to the instruction.
	Displacement int64
	Relative     bool
	// Segment is whether the address is relative to the base of the segment FS or GS.
	Segment bool
}

// NoRegister means that there is no register.
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
