package unwind

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"testing"

	"fulgur/internal/symbols/elffile/elftest"
)

// memory maps addresses to words.
type memory map[uint64]uint64

func (m memory) read(addr uint64, buf []byte) bool {
	for i := 0; i < len(buf); i += 8 {
		v, ok := m[addr+uint64(i)]
		if !ok {
			return false
		}
		binary.LittleEndian.PutUint64(buf[i:], v)
	}
	return true
}

// TestWalk walks stacks of a program whose functions have 256 bytes and one rule each. The
// stacks end for every reason. The code is mapped 0x10000000 above its link-time address.
func TestWalk(t *testing.T) {
	const bias = 0x10000000
	fn := func(i uint64) uint64 { return bias + codeAddr + i*256 }
	call := func(i uint64) uint64 { return fn(i) + 16 } // a return address
	const (
		leaf = iota
		big
		framePointer
		outermost
		trampoline
		aligned
		unsupported
		register
		linkLost
		raInRegister
		base
		baseSaved
		baseLost
		calleeSaved
		indexed
		gap
	)
	amd64Programs := [][]byte{
		leaf:         nil,
		big:          program(cfaDefCFAOffset, 32),
		framePointer: program(cfaDefCFA, amd64FP, 16, cfaOffset|amd64FP, 2),
		outermost:    program(cfaUndefined, amd64RA),
		aligned:      program(cfaExpression, amd64FP, expr(opBreg0+amd64FP, 0), cfaDefCFAExpression, expr(opBreg0+amd64FP, sleb(-8), opDeref)),
		unsupported:  program(cfaSameValue, amd64RA),
		register:     program(cfaDefCFA, 10, 0),
		linkLost:     nil,
		raInRegister: program(cfaDefCFAOffset, 0, cfaRegister, amd64RA, 5),
		base:         program(cfaDefCFA, amd64Base, 32, cfaOffset|amd64Base, 4),
		baseSaved:    program(cfaDefCFAOffset, 24, cfaOffset|amd64Base, 2),
		baseLost:     program(cfaUndefined, amd64Base),
		calleeSaved:  program(cfaDefCFA, 12, 0),
		indexed: program(cfaDefCFAExpression, expr(
			opBreg0+amd64SP, 8, opBreg0+9, 0, opLit0+8, opMul, opPlus, opDeref, opPlusUconst, 8)),
	}
	arm64Programs := [][]byte{
		leaf:         nil,
		big:          program(cfaDefCFAOffset, 32, cfaOffset|arm64RA, 4),
		framePointer: program(cfaDefCFA, arm64FP, 16, cfaOffset|arm64FP, 2, cfaOffset|arm64RA, 1),
		outermost:    program(cfaUndefined, arm64RA),
		linkLost:     program(cfaDefCFAOffset, 16),
		register:     program(cfaDefCFA, 10, 16, cfaOffset|arm64RA, 1),
		raInRegister: program(cfaDefCFAOffset, 16, cfaRegister, arm64RA, 15),
		gap - 1:      nil,
	}
	table := func(m elf.Machine, programs [][]byte) *Table {
		f := frames{eh: true}
		f.cie(m, "", defaultCIE(m)...)
		for i, p := range programs {
			if i != trampoline {
				f.fde(codeAddr+uint64(i)*256, 256, false, p...)
			}
		}
		code := make([]byte, 256*gap)
		copy(code[256*trampoline+1:], archOf(m).sigreturn)
		table, err := compileBytes(t, madeUp(m, code, elftest.Section{Name: ".eh_frame", Content: f.b}), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	amd64Table, arm64Table := table(elf.EM_X86_64, amd64Programs), table(elf.EM_AARCH64, arm64Programs)

	const sp = 0x7ffc0000
	for _, test := range []struct {
		name    string
		machine elf.Machine
		pc      uint64
		fp      uint64
		regs    map[int]uint64
		memory  memory
		want    string
	}{
		{"complete", elf.EM_X86_64, fn(leaf), sp + 64, nil, memory{
			sp: call(big), sp + 32: call(framePointer), sp + 64: 0, sp + 72: call(outermost),
		}, fmt.Sprintf("[%#x <-%#x <-%#x <-%#x] complete", fn(leaf), call(big), call(framePointer), call(outermost))},
		{"zero", elf.EM_X86_64, fn(leaf), 0, nil, memory{sp: 0}, fmt.Sprintf("[%#x] complete", fn(leaf))},
		{"aligned", elf.EM_X86_64, fn(aligned), sp + 80, nil, memory{
			sp + 80: 7, sp + 72: sp + 128, sp + 120: call(outermost),
		}, fmt.Sprintf("[%#x <-%#x] complete", fn(aligned), call(outermost))},
		{"signal on another stack", elf.EM_X86_64, fn(leaf), 0, nil, func() memory {
			m := memory{sp: fn(trampoline) + 1}
			for i := range amd64.signal.regs {
				m[sp+8+40+uint64(i)*8] = 0
			}
			m[sp+8+40+2*8] = 0x5000 // r10
			m[sp+8+160] = 0x4000    // rsp
			m[sp+8+168] = fn(register)
			m[0x5000-8] = call(outermost)
			return m
		}(), fmt.Sprintf("[%#x <-%#x %#x <-%#x] complete", fn(leaf), fn(trampoline)+1, fn(register), call(outermost))},
		{"signal at a jump to nowhere", elf.EM_X86_64, fn(leaf), 0, nil, func() memory {
			m := memory{sp: fn(trampoline) + 1}
			for i := range amd64.signal.regs {
				m[sp+8+40+uint64(i)*8] = 0
			}
			return m
		}(), fmt.Sprintf("[%#x <-%#x 0x0] no code mapped", fn(leaf), fn(trampoline)+1)},
		{"call through a register", elf.EM_X86_64, fn(raInRegister), 0, map[int]uint64{5: call(outermost)}, memory{},
			fmt.Sprintf("[%#x <-%#x] complete", fn(raInRegister), call(outermost))},
		{"depth", elf.EM_X86_64, fn(leaf), 0, nil, memory{
			sp: call(leaf), sp + 8: call(leaf), sp + 16: call(leaf), sp + 24: call(leaf), sp + 32: call(leaf),
		}, fmt.Sprintf("[%#x <-%#x <-%#x <-%#x] depth limit", fn(leaf), call(leaf), call(leaf), call(leaf))},
		{"no file", elf.EM_X86_64, fn(leaf), 0, nil, memory{sp: 0x77}, fmt.Sprintf("[%#x <-0x77] no code mapped", fn(leaf))},
		{"no table", elf.EM_X86_64, fn(gap) + 1, 0, nil, nil, fmt.Sprintf("[%#x] no unwind table", fn(gap)+1)},
		{"file without table", elf.EM_X86_64, 0x100, 0, nil, nil, "[0x100] no unwind table"},
		{"frame pointers", elf.EM_X86_64, 0x200, sp + 16, nil, memory{
			sp + 16: sp + 64, sp + 24: call(framePointer), sp + 64: 0, sp + 72: call(outermost),
		}, fmt.Sprintf("[0x200 <-%#x <-%#x] complete", call(framePointer), call(outermost))},
		{"no frame pointer", elf.EM_X86_64, 0x200, 0, nil, nil, "[0x200] end of frame pointers"},
		{"frame pointers to the start of a thread", elf.EM_X86_64, 0x200, sp, nil, memory{sp: 0, sp + 8: 0}, "[0x200] end of frame pointers"},
		{"frame pointer of a callee", elf.EM_X86_64, 0x200, sp - 16, nil, memory{sp - 16: 0, sp - 8: call(outermost)}, "[0x200] broken stack"},
		{"frame pointer to nowhere", elf.EM_X86_64, 0x200, sp + 16, nil, memory{sp + 16: 0}, "[0x200] broken stack"},
		{"no address of a frame", elf.EM_X86_64, 0x200, sp + 1, nil, nil, "[0x200] broken stack"},
		{"frame pointer to another stack", elf.EM_X86_64, 0x300, sp - 1024, nil, memory{
			sp - 1024: 0, sp - 1016: call(outermost),
		}, fmt.Sprintf("[0x300 <-%#x] complete", call(outermost))},
		{"other machine", elf.EM_RISCV, 0x100, 0, nil, nil, "[] no unwind table"},
		{"unsupported", elf.EM_X86_64, fn(unsupported), 0, nil, nil, fmt.Sprintf("[%#x] unsupported unwind rule", fn(unsupported))},
		{"register that calls change", elf.EM_X86_64, fn(leaf), 0, map[int]uint64{10: sp + 64}, memory{
			sp: call(register), sp + 56: call(outermost), call(outermost) - 8: 0xe8 << 24,
		}, fmt.Sprintf("[%#x <-%#x <-%#x] complete", fn(leaf), call(register), call(outermost))},
		{"register that calls change, indirect call", elf.EM_X86_64, fn(leaf), 0, map[int]uint64{10: sp + 64}, memory{
			sp: call(register), sp + 56: call(outermost), call(outermost) - 8: 0xd0ff << 48,
		}, fmt.Sprintf("[%#x <-%#x <-%#x] complete", fn(leaf), call(register), call(outermost))},
		{"register that calls change, unreadable code", elf.EM_X86_64, fn(leaf), 0, map[int]uint64{10: sp + 64}, memory{
			sp: call(register), sp + 56: call(outermost),
		}, fmt.Sprintf("[%#x <-%#x <-%#x] complete", fn(leaf), call(register), call(outermost))},
		{"register that a call changed", elf.EM_X86_64, fn(leaf), 0, map[int]uint64{10: sp + 64}, memory{
			sp: call(register), sp + 56: call(outermost), call(outermost) - 8: 0xe0ff << 48, // a jump
		}, fmt.Sprintf("[%#x <-%#x] register not known", fn(leaf), call(register))},
		{"register that calls keep", elf.EM_X86_64, fn(leaf), 0, map[int]uint64{12: sp + 64}, memory{
			sp: call(calleeSaved), sp + 56: call(outermost), call(outermost) - 8: 0xe8 << 24,
		}, fmt.Sprintf("[%#x <-%#x] register not known", fn(leaf), call(calleeSaved))},
		{"above an array", elf.EM_X86_64, fn(indexed), 0, map[int]uint64{9: 4}, memory{
			sp + 40: sp + 80, sp + 80: call(outermost),
		}, fmt.Sprintf("[%#x <-%#x] complete", fn(indexed), call(outermost))},
		{"base register", elf.EM_X86_64, fn(leaf), 0, map[int]uint64{amd64Base: sp + 64}, memory{
			sp: call(base), sp + 88: call(outermost),
		}, fmt.Sprintf("[%#x <-%#x <-%#x] complete", fn(leaf), call(base), call(outermost))},
		{"saved base register", elf.EM_X86_64, fn(leaf), 0, nil, memory{
			sp: call(baseSaved), sp + 16: sp + 64, sp + 24: call(base), sp + 88: call(outermost),
		}, fmt.Sprintf("[%#x <-%#x <-%#x <-%#x] complete", fn(leaf), call(baseSaved), call(base), call(outermost))},
		{"unreadable base register", elf.EM_X86_64, fn(leaf), 0, nil, memory{
			sp: call(baseSaved), sp + 24: call(base),
		}, fmt.Sprintf("[%#x <-%#x <-%#x] register not known", fn(leaf), call(baseSaved), call(base))},
		{"lost base register", elf.EM_X86_64, fn(baseLost), 0, map[int]uint64{amd64Base: sp + 64}, memory{sp: call(base)},
			fmt.Sprintf("[%#x <-%#x] register not known", fn(baseLost), call(base))},
		{"base register used up", elf.EM_X86_64, fn(leaf), 0, map[int]uint64{amd64Base: sp + 64}, memory{
			sp: call(base), sp + 88: call(base),
		}, fmt.Sprintf("[%#x <-%#x <-%#x] register not known", fn(leaf), call(base), call(base))},
		{"return address in a register", elf.EM_X86_64, fn(leaf), 0, nil, memory{sp: call(raInRegister)},
			fmt.Sprintf("[%#x <-%#x] stack does not grow", fn(leaf), call(raInRegister))},
		{"memory", elf.EM_X86_64, fn(big), 0, nil, nil, fmt.Sprintf("[%#x] unreadable stack", fn(big))},
		{"downwards", elf.EM_X86_64, fn(framePointer), sp - 64, nil, nil, fmt.Sprintf("[%#x] stack does not grow", fn(framePointer))},

		{"arm64", elf.EM_AARCH64, fn(leaf), sp + 32, map[int]uint64{arm64RA: 0xa5<<56 | call(big)}, memory{
			sp: 0x1234<<48 | call(framePointer), sp + 32: 0, sp + 40: call(outermost),
		}, fmt.Sprintf("[%#x <-%#x <-%#x <-%#x] complete", fn(leaf), call(big), call(framePointer), call(outermost))},
		{"arm64, link register lost", elf.EM_AARCH64, fn(linkLost), 0, map[int]uint64{arm64RA: call(linkLost)}, memory{},
			fmt.Sprintf("[%#x <-%#x] register not known", fn(linkLost), call(linkLost))},
		{"arm64, register that calls change", elf.EM_AARCH64, fn(leaf), 0, map[int]uint64{arm64RA: call(register), 10: sp + 64}, memory{
			sp + 72: call(outermost), call(outermost) - 8: 0xd63f0020 << 32,
		}, fmt.Sprintf("[%#x <-%#x <-%#x] complete", fn(leaf), call(register), call(outermost))},
		{"arm64, return address in a register", elf.EM_AARCH64, fn(leaf), 0, map[int]uint64{arm64RA: call(raInRegister), 15: call(outermost)}, memory{
			call(outermost) - 8: 0x97ffffff << 32,
		}, fmt.Sprintf("[%#x <-%#x <-%#x] complete", fn(leaf), call(raInRegister), call(outermost))},
		{"arm64, register that a call changed", elf.EM_AARCH64, fn(leaf), 0, map[int]uint64{arm64RA: call(raInRegister), 15: call(outermost)}, memory{
			call(outermost) - 8: 0x17ffffff << 32, // a jump
		}, fmt.Sprintf("[%#x <-%#x] register not known", fn(leaf), call(raInRegister))},
		{"arm64, signal", elf.EM_AARCH64, fn(leaf), 0, map[int]uint64{arm64RA: fn(trampoline) + 1}, func() memory {
			m := memory{}
			for i := range arm64.signal.regs {
				m[sp+312+uint64(i)*8] = 0
			}
			m[sp+312+arm64RA*8] = call(outermost)
			m[sp+560] = 0x4000
			m[sp+568] = fn(leaf)
			return m
		}(), fmt.Sprintf("[%#x <-%#x %#x <-%#x] complete", fn(leaf), fn(trampoline)+1, fn(leaf), call(outermost))},
	} {
		tab, a := amd64Table, amd64
		if test.machine == elf.EM_AARCH64 {
			tab, a = arm64Table, arm64
		}
		w := Walker{
			Machine: test.machine,
			Find: func(addr uint64) (Code, uint64, bool) {
				switch addr {
				case 0x100:
					return Code{}, 0, true
				case 0x200:
					return Generated(), 0, true
				case 0x300:
					return Code{Fallback: Chain(ChainStacks)}, 0, true
				}
				return Code{Table: tab}, bias, addr >= bias
			},
			Read:   test.memory.read,
			PCMask: 1<<48 - 1,
		}
		regs := Registers{PC: test.pc}
		regs.R[a.sp], regs.R[a.fp] = sp, test.fp
		for n, v := range test.regs {
			regs.R[n] = v
		}
		got, end := w.Walk(regs, nil, 4)
		if s := fmt.Sprint(got, " ", end); s != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, s, test.want)
		}
	}
}

// In a copy of a stack, registers that were saved below the stack pointer have the values
// from the interrupted function.
func TestWalkAboveSP(t *testing.T) {
	const sp = 0x7ffc0000
	const (
		released = blockSize * iota // a function that has restored its registers, before it returns
		framePointer
		base
		outermost
	)
	table := &Table{Segments: []Segment{{Size: 4 * blockSize}}, Blocks: []uint32{0, 1, 2, 3, 4}, Rules: []Rule{
		{Kind: KindSP, CFA: 8, Arg: 3, FPSlot: SlotCFA, FP: -16, RASlot: SlotCFA, RA: -8},
		{Kind: KindFP, CFA: 16, FPSlot: SlotCFA, FP: -16, RASlot: SlotCFA, RA: -8},
		{Kind: KindRegister, CFA: 16, Arg: amd64Base, RASlot: SlotCFA, RA: -8},
		{Kind: KindEnd},
	}}
	for rule := range uint32(4) {
		table.Rows = append(table.Rows, newRow(0, rule))
	}
	for _, test := range []struct {
		caller  uint64
		aboveSP bool
		want    string
	}{
		{framePointer, true, "[0x0 <-0x410 <-0xc10] complete"},
		{base, true, "[0x0 <-0x810 <-0xc10] complete"},
		{framePointer, false, "[0x0] unreadable stack"},
	} {
		m := memory{sp: test.caller + 16, sp + 32: 0, sp + 40: outermost + 16}
		w := Walker{Machine: elf.EM_X86_64, Read: m.read, AboveSP: test.aboveSP,
			Find: func(uint64) (Code, uint64, bool) { return Code{Table: table}, 0, true }}
		regs := Registers{PC: released}
		regs.R[amd64SP], regs.R[amd64FP], regs.R[amd64Base] = sp, sp+32, sp+32
		got, end := w.Walk(regs, nil, 4)
		if s := fmt.Sprint(got, " ", end); s != test.want {
			t.Errorf("caller %#x, above SP %v: got %s, want %s", test.caller, test.aboveSP, s, test.want)
		}
	}
}
