package events

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/bpf"
)

// note returns a note that describes a USDT probe.
func note(pc, base, semaphore uint64, texts string) []byte {
	desc := binary.LittleEndian.AppendUint64(nil, pc)
	desc = binary.LittleEndian.AppendUint64(desc, base)
	desc = append(binary.LittleEndian.AppendUint64(desc, semaphore), texts...)
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(usdtName)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(desc)))
	b = append(binary.LittleEndian.AppendUint32(b, usdtType), usdtName...)
	for b = append(b, desc...); len(b)%4 != 0; {
		b = append(b, 0)
	}
	return b
}

func TestParseUSDT(t *testing.T) {
	first, second := note(1, 2, 3, "python\x00gc__start\x00-4@%eax\x00"), note(4, 5, 0, "a\x00b\x00\x00")
	want := []usdtNote{{1, 2, 3, "python", "gc__start", "-4@%eax"}, {4, 5, 0, "a", "b", ""}}
	if got := parseUSDT(slices.Concat(first, second)); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := parseUSDT(slices.Concat(first, second[:len(second)-5])); !slices.Equal(got, want[:1]) {
		t.Errorf("cut off: got %+v, want %+v", got, want[:1])
	}
	if got := parseUSDT(slices.Concat(note(1, 2, 3, "no end"), second)); !slices.Equal(got, want[1:]) {
		t.Errorf("malformed: got %+v, want %+v", got, want[1:])
	}
}

// FuzzParseUSDT parses arbitrary notes. Descriptions written again are the same, and the operands are
// in registers or at 32-bit displacements from them.
func FuzzParseUSDT(f *testing.F) {
	f.Add(note(1, 2, 3, "python\x00gc__start\x00-4@%eax 8@-16(%rbp) 4@$5\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list := parseUSDT(b)
		var again []byte
		for _, n := range list {
			again = append(again, note(n.pc, n.base, n.semaphore, n.provider+"\x00"+n.name+"\x00"+n.operands+"\x00")...)
			for _, operand := range strings.Fields(n.operands) {
				field, ok := parseOperand(operand)
				if !ok {
					continue
				}
				isConstant := bpf.CountFieldFrom(field.From) == bpf.CountFieldFromFIELD_CONSTANT
				if field.Offset > stackRegister || !slices.Contains([]uint16{1, 2, 4, 8}, field.Size) ||
					!isConstant && int64(int32(field.Displacement)) != field.Displacement {
					t.Errorf("%q: got %+v", operand, field)
				}
			}
		}
		if got := parseUSDT(again); !slices.Equal(got, list) {
			t.Errorf("got %+v of the notes written again, want %+v", got, list)
		}
	})
}

func TestParseOperand(t *testing.T) {
	constant := Field{From: uint8(bpf.CountFieldFromFIELD_CONSTANT), Displacement: -5, Size: 4, IsSigned: 1}
	if got, ok := parseOperand("-4@$-5"); !ok || got != constant {
		t.Errorf("constant: got %+v, %t; want %+v", got, ok, constant)
	}
	for s, want := range map[string]int64{"4@$-1": 1<<32 - 1, "1@$-1": 255, "2@$65535": 65535, "-1@$255": -1, "8@$-1": -1, "-8@$-1": -1} {
		if got, ok := parseOperand(s); !ok || got.Displacement != want {
			t.Errorf("%q: got %+v, %t; want the value %d", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "4", "4@", "3@$1", "x@$1", "4@foo(%rip)", "4@(%rax,%rbx,8)", "4@(", "8@%xmm0", "4@[", "16@$1"} {
		if got, ok := parseOperand(s); ok {
			t.Errorf("%q: got %+v, want none", s, got)
		}
	}
}

func TestIsNop(t *testing.T) {
	for code, want := range map[string]bool{
		"\x90\x90": true, "\x66\x90\xc3": true, "\x0f\x1f\x44\x00": true, "\x66\x0f\x1f\x00": true,
		"": false, "\xc3\x90": false, "\x0f\x05": false, "\xf0\xff\x07": false,
	} {
		if got := isNop(elf.EM_X86_64, []byte(code)); got != want {
			t.Errorf("% x: got %t, want %t", code, got, want)
		}
	}
	if !isNop(elf.EM_AARCH64, []byte{0x1f, 0x20, 0x03, 0xd5}) || isNop(elf.EM_AARCH64, []byte{0xc0, 0x03, 0x5f, 0xd6}) {
		t.Error("arm64: a NOP must be one, and a RET must not")
	}
}
