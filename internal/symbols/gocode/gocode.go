// Package gocode finds places in the machine code of Go functions at which a uprobe sees each
// call once: after the check of the stack, and at the return instructions. uretprobes would
// crash Go programs, since Go moves stacks.
//
// It knows the code that Go's compiler has generated since Go 1.18, for x86-64 and arm64. Other code
// is an error of package returns, since its returns are in doubt.
package gocode

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"go/version"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/instruction"
	"fulgur/internal/symbols/returns"
)

// oldest is the first version of Go that has arguments and the goroutine in registers on all
// architectures.
const oldest = "go1.18"

// CheckVersion returns an error if f was built with a version of Go before 1.18. Development
// versions pass, and so do files without a version.
func CheckVersion(f *elffile.File) error {
	info, err := buildinfo.Read(f.Reader())
	if err == nil && version.IsValid(info.GoVersion) && version.Compare(info.GoVersion, oldest) < 0 {
		return fmt.Errorf("it was built with %s, older than %s", info.GoVersion, oldest)
	}
	return nil
}

// Prologue is the maximum number of bytes of the code that checks the size of the stack.
const Prologue = 32

// AfterStackCheck returns the offset of the first instruction after the code with which a
// function checks the size of the stack, 0 if it does not begin with such code. If the stack
// is too small, Go grows it and executes the function again from its start, so that a uprobe
// there would count a call twice. The registers with arguments do not change.
func AfterStackCheck(machine elf.Machine, code []byte) uint64 {
	switch machine {
	case elf.EM_X86_64:
		return afterCheckX86(code)
	case elf.EM_AARCH64:
		return afterCheckARM(code)
	}
	return 0
}

func afterCheckX86(code []byte) uint64 {
	rest := code
	skip := func(operand int, prefix ...byte) bool {
		if !bytes.HasPrefix(rest, prefix) || len(rest) < len(prefix)+operand {
			return false
		}
		rest = rest[len(prefix)+operand:]
		return true
	}
	// The size of the frame decides which form stackcheck in cmd/internal/obj/x86 chooses.
	switch {
	case skip(0, 0x49, 0x3b, 0x66, 0x10): // CMPQ SP, 16(R14)
	case skip(1, 0x4c, 0x8d, 0x64, 0x24), skip(4, 0x4c, 0x8d, 0xa4, 0x24): // LEAQ -N(SP), R12
		if !skip(0, 0x4d, 0x3b, 0x66, 0x10) { // CMPQ R12, 16(R14)
			return 0
		}
	case skip(0, 0x49, 0x89, 0xe4): // MOVQ SP, R12; SUBQ $N, R12; JCS; CMPQ R12, 16(R14)
		if !skip(4, 0x49, 0x81, 0xec) || !skip(1, 0x72) && !skip(4, 0x0f, 0x82) || !skip(0, 0x4d, 0x3b, 0x66, 0x10) {
			return 0
		}
	default:
		return 0
	}
	if !skip(1, 0x76) && !skip(4, 0x0f, 0x86) { // JLS
		return 0
	}
	return uint64(len(code) - len(rest))
}

func afterCheckARM(code []byte) uint64 {
	at := 0
	// skip skips the instruction that has these bits under the mask.
	skip := func(mask, bits uint32) bool {
		if at+sizeARM > len(code) || binary.LittleEndian.Uint32(code[at:])&mask != bits {
			return false
		}
		at += sizeARM
		return true
	}
	if !skip(^uint32(0), 0xf9400b90) { // MOVD 16(g), R16
		return 0
	}
	// The size of the frame decides which form stacksplit in cmd/internal/obj/arm64 chooses.
	if !skip(^uint32(0), 0xeb3063ff) { // CMP R16, RSP
		for skip(0xdf80001f, 0xd280001b) { // MOVZ and MOVK to R27
		}
		switch {
		case skip(0xff8003ff, 0xd10003f1): // SUB $N, RSP, R17
		case skip(0xff8003ff, 0xf10003f1), skip(^uint32(0), 0xeb3b63f1): // SUBS $N or R27, RSP, R17
			if !skip(0xff00001f, 0x54000003) { // BLO
				return 0
			}
		default:
			return 0
		}
		if !skip(^uint32(0), 0xeb10023f) { // CMP R16, R17
			return 0
		}
	}
	if !skip(0xff00001f, 0x54000009) { // BLS
		return 0
	}
	return uint64(at)
}

// Calls holds the places of a function, as offsets from its start.
type Calls struct {
	// Entry is the first instruction after the check of the stack.
	Entry uint64
	// Returns are the return instructions, in order.
	Returns []uint64
}

// Find finds the places of the function whose machine code is given. The code may end with
// padding.
func Find(machine elf.Machine, code []byte) (c Calls, err error) {
	c.Entry = AfterStackCheck(machine, code[:min(len(code), Prologue)])
	if c.Entry >= uint64(len(code)) {
		return Calls{}, returns.ErrNone
	}
	switch machine {
	case elf.EM_X86_64:
		err = c.findX86(code)
	case elf.EM_AARCH64:
		err = c.findARM(code)
	default:
		err = fmt.Errorf("code for %v is not supported", machine)
	}
	if err == nil && len(c.Returns) == 0 {
		err = returns.ErrNone
	}
	if err != nil {
		return Calls{}, err
	}
	return c, nil
}

// checkJump checks the target of a jump, relative to the function's start.
func (c *Calls) checkJump(target uint64, size int) error {
	switch {
	case target >= uint64(size):
		return returns.ErrElsewhere
	case target == c.Entry:
		return returns.ErrEntry // each turn of a loop would look like a call
	}
	return nil
}

func (c *Calls) findX86(code []byte) error {
	for at := 0; at < len(code); {
		in, ok := instruction.DecodeX86(code[at:], uint64(at))
		if !ok || in.Size <= 0 {
			return returns.ErrUnknown
		}
		var err error
		switch in.Kind {
		case instruction.Return:
			if in.Size != 1 {
				return returns.ErrUnknown
			}
			c.Returns = append(c.Returns, uint64(at))
		case instruction.Jump, instruction.ConditionalJump, instruction.CounterJump:
			err = c.checkJump(in.Target, len(code))
		case instruction.IndirectJump:
			// Tables of a switch have 8 bytes for each case. Other jumps end wrappers.
			if o := in.Operand; !o.Memory || o.Index == instruction.NoRegister || o.Scale != 8 {
				err = returns.ErrIndirect
			}
		}
		if err != nil {
			return err
		}
		at += in.Size
	}
	return nil
}

// Instructions of arm64 (Arm Architecture Reference Manual, C4.1).
const (
	retARM = 0xd65f03c0 // ret x30
	// tableARM is the register for jumps, after a load from the table of a switch.
	tableARM = 27
	sizeARM  = 4
)

func (c *Calls) findARM(code []byte) error {
	if len(code)%sizeARM != 0 {
		return returns.ErrUnknown
	}
	for at := 0; at < len(code); at += sizeARM {
		word := binary.LittleEndian.Uint32(code[at:])
		in, ok := instruction.DecodeARM64(code[at:], uint64(at))
		if !ok {
			return returns.ErrUnknown
		}
		var err error
		switch in.Kind {
		case instruction.Return:
			if word != retARM {
				return returns.ErrUnknown
			}
			c.Returns = append(c.Returns, uint64(at))
		case instruction.IndirectJump:
			if in.Operand.Base != tableARM {
				err = returns.ErrIndirect
			}
		case instruction.Jump, instruction.ConditionalJump:
			err = c.checkJump(in.Target, len(code))
		case instruction.Plain:
			if word&0x3b000000 == 0x18000000 { // ldr of a literal
				err = returns.ErrData
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
