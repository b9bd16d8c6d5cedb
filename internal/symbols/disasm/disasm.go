// Package disasm turns machine code of x86-64 and arm64 into text: by the
// decoders of golang.org/x/arch, which need no program and no file, and by
// objdump (GNU binutils) for what these do not know.
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

// ErrMachine is wrapped by the errors for code of a machine that is not known.
var ErrMachine = errors.New("no disassembler for it")

// Syntax is how instructions are written: as in Intel's manuals for x86-64, as
// in Arm's for arm64.
const Syntax = "Intel"

// Instruction is an instruction, or bytes that are none.
type Instruction struct {
	// Address is that of its first byte, Size the number of its bytes.
	Address uint64
	Size    int
	// Text is the instruction in assembler, without labels.
	Text string
}

// Symbol is what begins at an address.
type Symbol struct {
	// Name is that of the function at an address, Offset the address less the
	// function's beginning, in bytes.
	Name   string
	Offset uint64
}

// String returns the symbol as objdump writes it: "main", "main+0x10".
func (s Symbol) String() string {
	if s.Offset == 0 {
		return s.Name
	}
	return fmt.Sprintf("%s+%#x", s.Name, s.Offset)
}

// Code is machine code that was decoded. Its text is made in a second step, when
// there are names for the targets of its branches.
type Code struct {
	instructions []decoded
	unknown      int
}

// decoded is an instruction of one of the two machines, or of none.
type decoded struct {
	address uint64
	size    int
	text    string // without the target
	branch  bool   // whether there is one
	target  uint64
}

// Decode decodes code, whose first byte is at address. Bytes that are no
// instruction that is known are one of their own each, or four on arm64. The
// error wraps [ErrMachine] for other machines.
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

// Unknown returns how many instructions were not known.
func (c *Code) Unknown() int { return c.unknown }

// Targets returns where branches and calls lead to, in no order, some perhaps
// more than once.
func (c *Code) Targets() []uint64 {
	var targets []uint64
	for _, d := range c.instructions {
		if d.branch {
			targets = append(targets, d.target)
		}
	}
	return targets
}

// Instructions returns the code as text. Targets that names has are shown by
// name too.
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

// endbr64 marks where indirect branches may lead to. The decoder does not know
// it, and with control-flow protection (-fcf-protection, the default of many
// distributions) most functions begin with it.
var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// decodeX86 decodes the first instruction of code.
func decodeX86(code []byte, address uint64) (d decoded, ok bool) {
	if bytes.HasPrefix(code, endbr64) {
		return decoded{size: len(endbr64), text: "endbr64"}, true
	}
	inst, err := x86asm.Decode(code, 64)
	if err != nil || inst.Op == 0 || inst.Len <= 0 || inst.Len > len(code) { // 0 is prefixes alone
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
		// Where it leads to is the last argument.
		if i := strings.LastIndexByte(d.text, ' '); i >= 0 {
			d.text = d.text[:i+1]
		}
	case inst.Op == x86asm.LEA:
		d.text = strings.Replace(d.text, "ptr [", "[", 1) // it points to nothing of a size
	}
	return d, true
}

// instructionARM is the size of an instruction of arm64, in bytes.
const instructionARM = 4

// pageARM is what the adrp instruction counts in, in bytes.
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
