package instruction

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTakeApart takes instructions apart.
func TestTakeApart(t *testing.T) {
	register := func(n uint8) Operand { return Operand{Base: n, Index: NoRegister, Scale: 1} }
	memory := func(base uint8, off int64) Operand {
		return Operand{Memory: true, Base: base, Index: NoRegister, Scale: 1, Displacement: off}
	}
	for _, test := range []struct {
		name string
		code []byte
		want Encoding
	}{
		{"push %r12", []byte{0x41, 0x54}, Encoding{Opcode: 0x54, Low: 12, Extended: true}},
		{"sub $24, %rsp", []byte{0x48, 0x83, 0xec, 0x18}, Encoding{
			Opcode: 0x83, Wide: true, Extended: true, HasOperand: true, Register: 5, Operand: register(4), Low: 3, Immediate: 24,
		}},
		{"mov %r12, 8(%rsp)", []byte{0x4c, 0x89, 0x64, 0x24, 0x08}, Encoding{
			Opcode: 0x89, Wide: true, Extended: true, HasOperand: true, Register: 12, Operand: memory(4, 8), Low: 1,
		}},
		{"movups %xmm5, -16(%rbp)", []byte{0x0f, 0x11, 0x6d, 0xf0}, Encoding{
			Map: 1, Opcode: 0x11, HasOperand: true, Register: 5, Operand: memory(5, -16), Low: 1,
		}},
		{"andn %rcx, %rdx, %r8", []byte{0xc4, 0x62, 0xe8, 0xf2, 0xc1}, Encoding{
			Map: 2, Opcode: 0xf2, Vector: true, Wide: true, HasOperand: true, Register: 8, Operand: register(1), Second: 2, Low: 2,
		}},
		{"vzeroupper", []byte{0xc5, 0xf8, 0x77}, Encoding{Map: 1, Opcode: 0x77, Vector: true, Low: 7}},
		{"pextrd $1, %xmm0, %eax", []byte{0x66, 0x0f, 0x3a, 0x16, 0xc0, 0x01}, Encoding{
			Map: 3, Opcode: 0x16, Narrow: true, HasOperand: true, Operand: register(0), Low: 6, Immediate: 1,
		}},
		{"mov $-1, %ah", []byte{0xb4, 0xff}, Encoding{Opcode: 0xb4, Low: 4, Immediate: -1}},
	} {
		in, ok := DecodeX86(test.code, 0)
		if !ok || in.Size != len(test.code) {
			t.Fatalf("%s: got %+v %v", test.name, in, ok)
		}
		if diff := cmp.Diff(test.want, TakeApart(test.code)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}
