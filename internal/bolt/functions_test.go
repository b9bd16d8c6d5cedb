package bolt

import (
	"debug/elf"
	"testing"

	"fulgur/internal/symbols/elffile"
)

// TestFunctions finds functions like BOLT: assembly functions without a size extend to
// the next function or the end of their section.
func TestFunctions(t *testing.T) {
	fs := &Functions{ranges: []span{{0x1040, 0x1040}, {0x1000, 0x1010}, {0x1020, 0x1030}, {0x1000, 0x1000}, {0x1030, 0x1030}, {0x3000, 0x3000}}}
	fs.arrange([]*elffile.Section{
		{Flags: elf.SHF_EXECINSTR, Addr: 0x2000, Size: 0x100},
		{Flags: elf.SHF_EXECINSTR, Addr: 0x1000, Size: 0x80},
		{Addr: 0x3000, Size: 0x100},
	})
	for _, tc := range []struct {
		a, b uint64
		want bool
	}{
		{0x1000, 0x100f, true},
		{0x100f, 0x1010, false}, // after the function
		{0x1010, 0x1018, false}, // in no function
		{0x1020, 0x1030, false},
		{0x1030, 0x103f, true},
		{0x103f, 0x1040, false},
		{0x1040, 0x107f, true},
		{0x107f, 0x1080, false},
		{0x3000, 0x3001, false}, // no code
		{0, 0, false},
	} {
		if got := fs.Same(tc.a, tc.b); got != tc.want {
			t.Errorf("%#x and %#x in one function: got %t, want %t", tc.a, tc.b, got, tc.want)
		}
	}
}
