package events

import "testing"

func TestIsNOP5(t *testing.T) {
	for code, want := range map[string]bool{
		"\x0f\x1f\x44\x00\x00": true,
		"\x66\x66\x66\x66\x90": true,
		"\x66\x66\x0f\x1f\x00": true,
		"\x66\x0f\x1f\x40\x00": true,
		"\x48\x8d\x64\x24\x00": true, // lea 0(%rsp), %rsp
		"\x4d\x8d\x64\x24\x00": true, // lea 0(%r12), %r12
		"\x66\x48\x8d\x40\x00": true, // lea 0(%rax), %rax
		"\x48\x8d\x44\x24\x08": false,
		"\x48\x8d\x64\x24\x08": false,
		"\x48\x8d\x44\x24\x00": false,
		"\x66\x66\x66\x41\x90": false, // xchg %r8w, %ax
		"\x90\x90\x90\x90\x90": false,
		"\x90\x0f\x1f\x40\x00": false,
		"\x0f\x1f\x40\x00\xc3": false, // of 4 bytes
		"\x66\x0f\x1f\x44\x00": false, // of 6
		"\x0f\x1f\x80\x00\x00": false, // of 7
		"\xe8\x00\x00\x00\x00": false,
	} {
		if got := isNOP5([]byte(code)); got != want {
			t.Errorf("% x: got %t, want %t", code, got, want)
		}
	}
}
