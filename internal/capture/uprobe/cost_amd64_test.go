package uprobe

import "testing"

func TestClassOf(t *testing.T) {
	for code, want := range map[string]class{
		"\x55":                         emulated, // push %rbp
		"\x41\x57":                     emulated, // push %r15
		"\x90":                         emulated, // nop
		"\x66\x90":                     emulated,
		"\xeb\x00":                     emulated, // jmp
		"\xe9\x00\x00\x00\x00":         emulated,
		"\xe8\x00\x00\x00\x00":         emulated, // call
		"\x74\x10":                     emulated, // je
		"\x0f\x86\x00\x01\x00\x00":     emulated, // jbe
		"\x41\x90":                     other,    // xchg %r8d, %eax
		"\x66\xeb\x00":                 other,
		"\x0f\x1f\x00":                 longNop,
		"\x66\x0f\x1f\x44\x00\x00":     longNop,
		"\x0f\x1f\x44\x00\x00":         nop5,
		"\xf3\x0f\x1e\xfa":             marker,
		"\x48\x83\xec\x18":             reserve,
		"\x48\x81\xec\x98\x00\x00\x00": other, // sub $0x98, %rsp
		"\x31\xc0":                     other,
		"\x0f\xb6\xc0":                 other,
		"\x66":                         other,
		"":                             other,
	} {
		if got := classOf([]byte(code)); got != want {
			t.Errorf("%x: got class %d, want %d", code, got, want)
		}
	}
}
