// Package disasm disassembles machine code of x86-64 and arm64. It uses the decoders of
// golang.org/x/arch, and objdump (GNU binutils) for instructions that they do not know.
package disasm

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"
)

// ErrMachine is wrapped by errors for code of an unsupported machine.
var ErrMachine = errors.New("no disassembler")

// Syntax names the syntax of instructions: Intel's manuals for x86-64, Arm's for arm64.
const Syntax = "Intel"

// Instruction is an instruction, or bytes that are not a valid one.
type Instruction struct {
	// Address is the address of its first byte, and Size its number of bytes.
	Address uint64
	Size    int
	// Text is the instruction in assembly, without labels.
	Text string
}

// Symbol is a function name plus an offset.
type Symbol struct {
	// Name is the function that contains an address, and Offset the address relative to
	// the function's start, in bytes.
	Name   string
	Offset uint64
}

// String returns the symbol in objdump's notation: "main", "main+0x10".
func (s Symbol) String() string {
	if s.Offset == 0 {
		return s.Name
	}
	return fmt.Sprintf("%s+%#x", s.Name, s.Offset)
}

// Code is decoded machine code. [Code.Instructions] formats it once the targets of its
// branches have names.
type Code struct {
	instructions []decoded
	unknown      int
}

// decoded is an instruction of either machine, or bytes that are not a valid one.
type decoded struct {
	address uint64
	size    int
	text    string // without the branch target
	branch  bool   // whether it has a target
	target  uint64
}

// Decode decodes code, whose first byte is at address. Bytes that are not a known
// instruction become instructions of one byte, or of four on arm64. The error wraps
// [ErrMachine] for other machines.
func Decode(machine elf.Machine, code []byte, address uint64) (*Code, error) {
	var step func([]byte, uint64) (decoded, bool)
	switch machine {
	case elf.EM_X86_64:
		step = decodeX86
	case elf.EM_AARCH64:
		step = decodeARM
	default:
		return nil, fmt.Errorf("code for %v: %w", machine, ErrMachine)
	}
	c := &Code{}
	for len(code) > 0 {
		d, ok := step(code, address)
		if !ok {
			c.unknown++
		}
		d.address = address
		c.instructions = append(c.instructions, d)
		code = code[d.size:]
		address += uint64(d.size)
	}
	return c, nil
}

// Unknown returns the number of unknown instructions.
func (c *Code) Unknown() int { return c.unknown }

// Targets returns the targets of branches and calls, in no particular order and possibly
// with duplicates.
func (c *Code) Targets() []uint64 {
	var targets []uint64
	for _, d := range c.instructions {
		if d.branch {
			targets = append(targets, d.target)
		}
	}
	return targets
}

// Instructions returns the code as text. Targets in names are also shown by name.
func (c *Code) Instructions(names map[uint64]Symbol) []Instruction {
	list := make([]Instruction, len(c.instructions))
	for i, d := range c.instructions {
		list[i] = Instruction{Address: d.address, Size: d.size, Text: d.text}
		if !d.branch {
			continue
		}
		list[i].Text += fmt.Sprintf("%#x", d.target)
		if s, ok := names[d.target]; ok {
			list[i].Text += " <" + s.String() + ">"
		}
	}
	return list
}

// endbr64 marks possible targets of indirect branches. The decoder does not know it, and
// with control-flow protection (-fcf-protection, the default of many distributions) most
// functions begin with it.
var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// decodeX86 decodes the first instruction of code.
func decodeX86(code []byte, address uint64) (d decoded, ok bool) {
	if bytes.HasPrefix(code, endbr64) {
		return decoded{size: len(endbr64), text: "endbr64"}, true
	}
	inst, err := x86asm.Decode(code, 64)
	if err != nil || inst.Op == 0 || inst.Len <= 0 || inst.Len > len(code) { // Op is 0 for prefixes without an instruction
		return decoded{size: 1, text: fmt.Sprintf(".byte %#02x", code[0])}, false
	}
	d.size = inst.Len
	next, comment := address+uint64(inst.Len), ""
	for i, arg := range inst.Args {
		switch arg := arg.(type) {
		case x86asm.Rel:
			d.branch, d.target = true, next+uint64(int64(arg))
		case x86asm.Mem:
			if arg.Base == x86asm.RIP {
				arg.Disp = int64(int32(arg.Disp)) // the decoder loses the sign
				inst.Args[i] = arg
				comment = fmt.Sprintf("  # %#x", next+uint64(arg.Disp))
			}
		}
	}
	d.text = x86asm.IntelSyntax(inst, address, nil) + comment
	switch {
	case d.branch:
		// The target is the last argument.
		if i := strings.LastIndexByte(d.text, ' '); i >= 0 {
			d.text = d.text[:i+1]
		}
	case inst.Op == x86asm.LEA:
		d.text = strings.Replace(d.text, "ptr [", "[", 1) // the operand has no size
	}
	return d, true
}

// instructionARM is the size of an arm64 instruction, in bytes.
const instructionARM = 4

// pageARM is the unit of the adrp instruction, in bytes.
const pageARM = 4096

// decodeARM decodes the first instruction of code.
func decodeARM(code []byte, address uint64) (d decoded, ok bool) {
	if len(code) < instructionARM {
		return decoded{size: len(code), text: fmt.Sprintf(".byte % x", code)}, false
	}
	inst, err := arm64asm.Decode(code[:instructionARM])
	if err != nil {
		word := uint32(code[0]) | uint32(code[1])<<8 | uint32(code[2])<<16 | uint32(code[3])<<24
		return decoded{size: instructionARM, text: fmt.Sprintf(".inst %#08x", word)}, false
	}
	d = decoded{size: instructionARM, text: arm64asm.GNUSyntax(inst)}
	for _, arg := range inst.Args {
		relative, isRelative := arg.(arm64asm.PCRel)
		if !isRelative {
			continue
		}
		from := address
		if inst.Op == arm64asm.ADRP {
			from &^= pageARM - 1
		}
		if i := strings.LastIndexByte(d.text, '.'); i >= 0 && strings.HasSuffix(d.text, relative.String()) {
			d.text, d.branch, d.target = d.text[:i], true, from+uint64(int64(relative))
		}
	}
	return d, true
}
