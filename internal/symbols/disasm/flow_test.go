package disasm_test

import (
	"debug/elf"
	"encoding/hex"
	"errors"
	"testing"

	"fulgur/internal/symbols/disasm"
)

func TestStep(t *testing.T) {
	type step struct {
		size  int
		flow  disasm.Flow
		known bool
	}
	for _, test := range []struct {
		name    string
		machine elf.Machine
		code    string
		want    step
	}{
		{"endbr64", elf.EM_X86_64, "f30f1efa", step{4, disasm.Straight, true}},
		{"vmulss", elf.EM_X86_64, "c5fa59c1", step{4, disasm.Straight, true}},
		{"vaddps zmm", elf.EM_X86_64, "62f17c4858c1", step{6, disasm.Straight, true}},
		{"je", elf.EM_X86_64, "7405", step{2, disasm.Conditional, true}},
		{"jne, far", elf.EM_X86_64, "0f8500010000", step{6, disasm.Conditional, true}},
		{"loop", elf.EM_X86_64, "e2fe", step{2, disasm.Conditional, true}},
		{"jmp", elf.EM_X86_64, "eb05", step{2, disasm.Always, true}},
		{"notrack jmp rax", elf.EM_X86_64, "3effe0", step{3, disasm.Always, true}},
		{"call", elf.EM_X86_64, "e8f3ffffff", step{5, disasm.Always, true}},
		{"repz ret", elf.EM_X86_64, "f3c3", step{2, disasm.Always, true}},
		{"syscall", elf.EM_X86_64, "0f05", step{2, disasm.Straight, true}},
		{"invalid", elf.EM_X86_64, "06", step{1, disasm.Straight, false}},
		{"cut short", elf.EM_X86_64, "e800", step{1, disasm.Straight, false}},
		{"stp", elf.EM_AARCH64, "fd7bbfa9", step{4, disasm.Straight, true}},
		{"b", elf.EM_AARCH64, "00000014", step{4, disasm.Always, true}},
		{"bl", elf.EM_AARCH64, "ffffff97", step{4, disasm.Always, true}},
		{"b.hi", elf.EM_AARCH64, "48000054", step{4, disasm.Conditional, true}},
		{"cbnz", elf.EM_AARCH64, "400000b5", step{4, disasm.Conditional, true}},
		{"tbz", elf.EM_AARCH64, "40000036", step{4, disasm.Conditional, true}},
		{"ret", elf.EM_AARCH64, "c0035fd6", step{4, disasm.Always, true}},
		{"retaa", elf.EM_AARCH64, "ff0b5fd6", step{4, disasm.Always, true}},
		{"blr", elf.EM_AARCH64, "00003fd6", step{4, disasm.Always, true}},
		{"svc", elf.EM_AARCH64, "010000d4", step{4, disasm.Straight, true}},
		{"eret", elf.EM_AARCH64, "e0039fd6", step{4, disasm.Always, true}},
		{"cut short, arm64", elf.EM_AARCH64, "c003", step{2, disasm.Straight, false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, err := hex.DecodeString(test.code)
			if err != nil {
				t.Fatal(err)
			}
			var got step
			if got.size, got.flow, got.known, err = disasm.Step(test.machine, code); err != nil || got != test.want {
				t.Errorf("got %+v, error %v, want %+v", got, err, test.want)
			}
		})
	}
	if _, _, _, err := disasm.Step(elf.EM_RISCV, []byte{1}); !errors.Is(err, disasm.ErrMachine) {
		t.Errorf("RISC-V: got error %v, want %v", err, disasm.ErrMachine)
	}
}
