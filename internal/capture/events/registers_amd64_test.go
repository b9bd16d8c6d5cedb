package events

import (
	"testing"

	"fulgur/internal/bpf"
)

func TestRegister(t *testing.T) {
	for name, want := range map[string]uint32{
		"%rax": 80, "%eax": 80, "%ax": 80, "%al": 80, "%rdi": 112, "%edi": 112, "%dil": 112, "%sil": 104, "%r8": 72, "%r8d": 72, "%r15": 0, "%r10w": 56, "%r11b": 48,
		"%rbp": 32, "%ebp": 32, "%bpl": 32, "%rsp": 152, "%rbx": 40, "%ecx": 88, "%dl": 96, "%rip": 128,
	} {
		if got, ok := register(name); !ok || got != want {
			t.Errorf("%s: got %d, %t; want %d", name, got, ok, want)
		}
	}
	for _, name := range []string{"", "%", "rax", "%ah", "%xmm0", "%r16", "%st"} {
		if got, ok := register(name); ok {
			t.Errorf("%s: got %d, want none", name, got)
		}
	}
	want := Field{From: uint8(bpf.CountFieldFromFIELD_USER), Offset: 32, Displacement: -16, Size: 8}
	if got, ok := parseOperand("8@-16(%rbp)"); !ok || got != want {
		t.Errorf("memory: got %+v, %t; want %+v", got, ok, want)
	}
}
