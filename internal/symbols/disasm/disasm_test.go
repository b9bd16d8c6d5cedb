package disasm_test

import (
	"debug/elf"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/symbols/disasm"
	"fulgur/internal/testenv"
)

func TestDecode(t *testing.T) {
	names := map[uint64]disasm.Symbol{0x1000: {Name: "begin"}, 0x1014: {Name: "begin", Offset: 0x14}}
	tests := map[string]struct {
		machine elf.Machine
		code    string // in hex
		want    []disasm.Instruction
		unknown int
	}{
		"amd64": {elf.EM_X86_64, "f30f1efa 55 4889e5 e8f3ffffff eb05 488d05f0ffffff 8d447f01 c5fa59c1 c3", []disasm.Instruction{
			{Address: 0x1000, Size: 4, Text: "endbr64"},
			{Address: 0x1004, Size: 1, Text: "push rbp"},
			{Address: 0x1005, Size: 3, Text: "mov rbp, rsp"},
			{Address: 0x1008, Size: 5, Text: "call 0x1000 <begin>"},
			{Address: 0x100d, Size: 2, Text: "jmp 0x1014 <begin+0x14>"},
			{Address: 0x100f, Size: 7, Text: "lea rax, [rip-0x10]  # 0x1006"},
			{Address: 0x1016, Size: 4, Text: "lea eax, [rdi+2*rdi+0x1]"},
			{Address: 0x101a, Size: 4, Text: "vmulss xmm0, xmm0, xmm1"},
			{Address: 0x101e, Size: 1, Text: "ret"},
		}, 0},
		"amd64, no instruction": {elf.EM_X86_64, "06 90 e8", []disasm.Instruction{
			{Address: 0x1000, Size: 1, Text: ".byte 0x06"},
			{Address: 0x1001, Size: 1, Text: "nop"},
			{Address: 0x1002, Size: 1, Text: ".byte 0xe8"},
		}, 2},
		"arm64": {elf.EM_AARCH64, "fd7bbfa9 ffffff97 48000054 00000090 60000010 c0035fd6", []disasm.Instruction{
			{Address: 0x1000, Size: 4, Text: "stp x29, x30, [sp,#-16]!"},
			{Address: 0x1004, Size: 4, Text: "bl 0x1000 <begin>"},
			{Address: 0x1008, Size: 4, Text: "b.hi 0x1010"},
			{Address: 0x100c, Size: 4, Text: "adrp x0, 0x1000 <begin>"},
			{Address: 0x1010, Size: 4, Text: "adr x0, 0x101c"},
			{Address: 0x1014, Size: 4, Text: "ret"},
		}, 0},
		"arm64, no instruction": {elf.EM_AARCH64, "00000000 c003", []disasm.Instruction{
			{Address: 0x1000, Size: 4, Text: ".inst 0x00000000"},
			{Address: 0x1004, Size: 2, Text: ".byte c0 03"},
		}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bytes, err := hex.DecodeString(strings.ReplaceAll(test.code, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			code, err := disasm.Decode(test.machine, bytes, 0x1000)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(test.want, code.Instructions(names)); d != "" {
				t.Error("(-want +got):\n" + d)
			}
			if code.Unknown() != test.unknown {
				t.Errorf("got %d unknown instructions, want %d", code.Unknown(), test.unknown)
			}
		})
	}
}

func TestOtherMachine(t *testing.T) {
	if _, err := disasm.Decode(elf.EM_RISCV, []byte{1}, 0); !errors.Is(err, disasm.ErrMachine) {
		t.Errorf("RISC-V: got error %v, want %v", err, disasm.ErrMachine)
	}
}

// The decoder and objdump find the same instructions in compiled code.
func TestAgainstObjdump(t *testing.T) {
	testenv.Tool(t, "objdump")
	cc := testenv.Tool(t, "gcc")
	dir := t.TempDir()
	source, program := filepath.Join(dir, "f.c"), filepath.Join(dir, "f")
	const text = `
		double work(double *a, int n) { double s = 0; for (int i = 0; i < n; i++) s += a[i] * (i % 7 ? a[i / 3] : 1.5); return s; }
		int main(int argc, char **argv) { double a[64] = { argc }; return work(a, 64) > argc ? 0 : 3; }`
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-O3", "-o", program, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	file, err := os.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	object, err := elf.NewFile(file)
	if err != nil {
		t.Fatal(err)
	}
	section := object.Section(".text")
	bytes, err := section.Data()
	if err != nil {
		t.Fatal(err)
	}
	code, err := disasm.Decode(object.Machine, bytes, section.Addr)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := disasm.Objdump(t.Context(), file, object.Machine, section.Addr, section.Addr+section.Size)
	if err != nil {
		t.Fatal(err)
	}
	places := func(list []disasm.Instruction) (at [][2]uint64) {
		for _, i := range list {
			at = append(at, [2]uint64{i.Address, uint64(i.Size)})
		}
		return at
	}
	if len(theirs) < 50 {
		t.Fatalf("got %d instructions from objdump, want at least 50", len(theirs))
	}
	if d := cmp.Diff(places(theirs), places(code.Instructions(nil))); d != "" {
		t.Error("(-objdump +fulgur):\n" + d)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0x55, 0x48, 0x89, 0xe5, 0xe8, 0, 0, 0, 0}, uint64(0x1000))
	f.Add([]byte{0x60, 0, 0, 0x90, 0xc0, 0x03, 0x5f, 0xd6}, ^uint64(0)-2)
	f.Fuzz(func(t *testing.T, code []byte, address uint64) {
		for _, machine := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
			c, err := disasm.Decode(machine, code, address)
			if err != nil {
				t.Fatal(err)
			}
			at := address
			for _, i := range c.Instructions(map[uint64]disasm.Symbol{address: {Name: "f"}}) {
				if i.Address != at || i.Size <= 0 || i.Text == "" {
					t.Fatalf("%v: got %+v at %#x, want an instruction there", machine, i, at)
				}
				at += uint64(i.Size)
			}
			if at != address+uint64(len(code)) {
				t.Fatalf("%v: got the end %#x, want %#x", machine, at, address+uint64(len(code)))
			}
		}
	})
}
