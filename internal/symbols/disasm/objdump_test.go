package disasm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// printed is output of objdump.
const printed = `
/proc/self/fd/3:     file format elf64-x86-64


Disassembly of section .text:

0000000000001139 <work>:
    1139:	push   rbp
    113a:	vaddpd zmm0,zmm1,zmm2
    1140:	jne    1139 <work>
`

func TestParseObjdump(t *testing.T) {
	got, err := parseObjdump(strings.NewReader(printed), 0x1142)
	if err != nil {
		t.Fatal(err)
	}
	want := []Instruction{
		{Address: 0x1139, Size: 1, Text: "push rbp"},
		{Address: 0x113a, Size: 6, Text: "vaddpd zmm0,zmm1,zmm2"},
		{Address: 0x1140, Size: 2, Text: "jne 1139 <work>"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error("(-want +got):\n" + d)
	}
	if _, err := parseObjdump(strings.NewReader("2:\tnop\n1:\tnop\n"), 3); err == nil {
		t.Error("got no error for descending addresses")
	}
}

func FuzzParseObjdump(f *testing.F) {
	f.Add(printed)
	f.Add("ffffffffffffffff:\tnop\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseObjdump(strings.NewReader(text), 0x2000)
		if err != nil {
			return
		}
		for i, in := range list {
			if i > 0 && in.Address <= list[i-1].Address || in.Size < 0 || in.Size > longestX86 {
				t.Fatalf("got %+v after %+v, want ascending addresses", in, list[max(i, 1)-1])
			}
		}
	})
}
