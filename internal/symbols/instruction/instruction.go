// Package instruction decodes the lengths of x86-64 and arm64 instructions, and the targets of
// jumps and calls. It does not interpret other instructions, so it covers all with a regular
// encoding, including AVX-512.
//
// Callers write breakpoints at instruction boundaries, so the decoders reject any doubtful
// instruction. On x86-64, these are invalid opcodes, encodings of a single vendor, jumps whose
// operand size depends on the vendor, and far jumps.
//
// The formats are described in Intel's Software Developer's Manual, volume 2 (chapter 2, and
// the opcode maps of appendix A), and in the Arm Architecture Reference Manual, C4.1.
package instruction

import "debug/elf"

// Decoder decodes the instruction at the beginning of code, which is at address. It reports false
// if it does not know the instruction, or if code ends within it.
type Decoder func(code []byte, address uint64) (Instruction, bool)

// DecoderOf returns the decoder for a machine, or nil if there is none.
func DecoderOf(machine elf.Machine) Decoder {
	switch machine {
	case elf.EM_X86_64:
		return DecodeX86
	case elf.EM_AARCH64:
		return DecodeARM64
	}
	return nil
}

// Kind is the effect of an instruction on the flow of control.
type Kind uint8

const (
	// Plain continues at the next instruction.
	Plain Kind = iota
	// ConditionalJump jumps to Target if a condition on the flags (Jcc, B.cond) or on a register
	// (CBZ, CBNZ, TBZ, TBNZ) is true.
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
	// Stop does not continue: HLT, UD2, BRK and other instructions that programs do not execute
	// in normal operation.
	Stop
)

// Exclusive is the effect of an arm64 instruction on the processor's exclusive monitor. An
// exception between a load-exclusive and its store-exclusive makes the store fail.
type Exclusive uint8

const (
	// NotExclusive has no effect.
	NotExclusive Exclusive = iota
	// LoadExclusive begins an exclusive access (LDXR and others).
	LoadExclusive
	// EndExclusive ends it: a store-exclusive (STXR and others), or CLREX.
	EndExclusive
)

// Instruction is a decoded instruction.
type Instruction struct {
	// Size is the number of bytes.
	Size int
	Kind Kind
	// Target is the address to which a direct jump or call leads.
	Target uint64
	// Condition is the condition code of a ConditionalJump, from 0 to 15, unless it has a Test.
	Condition uint8
	// Test is the condition of a ConditionalJump that tests a register.
	Test Test
	// Prefixed is whether the instruction has legacy prefixes. The kernel's uprobes refuse
	// some of them.
	Prefixed bool
	// Exclusive is the effect on arm64's exclusive monitor.
	Exclusive Exclusive
	// Operand is the operand of an IndirectJump or IndirectCall.
	Operand Operand
	// Reference is the address of data, or of other code, that the instruction has relative to itself: of an
	// x86 operand, or of an arm64 load of a literal. It is 0 if there is none.
	Reference uint64
}

// Test is a condition on a register.
type Test struct {
	// Mask selects the tested bits; 0 means that there is no test. Register is the number of the
	// register; 31 is the zero register.
	Mask     uint64
	Register uint8
	// Nonzero is whether the condition is that a tested bit is 1, rather than that none is.
	Nonzero bool
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
	// Signed is whether the address in the register carries a pointer authentication code.
	Signed bool
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
