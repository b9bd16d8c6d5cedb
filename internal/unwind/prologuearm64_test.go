package unwind

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"fulgur/internal/testenv"
)

// assembleARM64 returns the code of a program in assembly.
func assembleARM64(t *testing.T, assembly string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(path+".s", []byte(assembly), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := testenv.Command(t, testenv.Tool(t, "aarch64-linux-gnu-gcc"), "-c", "-march=armv8.5-a+sve+memtag", "-o", path, path+".s").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	code, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// TestCodeARM64 analyzes a function in assembly.
func TestCodeARM64(t *testing.T) {
	const bare = "cfa=sp+0 fp=same ra=same"
	for _, test := range []struct {
		name, code string
		want       []string
	}{
		{"leaf", "add x0, x0, x1; ret", []string{"0x0 " + bare, "0x8 none"}},
		{"frame pointer", "stp x29, x30, [sp, #-32]!; mov x29, sp; str x19, [sp, #16]; bl .+256; ldr x19, [sp, #16]; ldp x29, x30, [sp], #32; ret", []string{
			"0x0 " + bare, "0x4 cfa=sp+32 fp=same ra=cfa-24", "0x8 cfa=fp+32 fp=cfa-32 ra=cfa-24", "0x18 " + bare, "0x1c cfa=fp+32 fp=cfa-32 ra=cfa-24",
		}},
		{"signed return address", "paciasp; str x30, [sp, #-16]!; bl .+256; ldr x30, [sp], #16; autiasp; ret", []string{
			"0x0 " + bare, "0x8 cfa=sp+16 fp=same ra=cfa-16", "0x10 " + bare, "0x18 none",
		}},
		{"authenticated return", "paciasp; stp x29, x30, [sp, #-16]!; mov x29, sp; ldp x29, x30, [sp], #16; retaa", []string{
			"0x0 " + bare, "0x8 cfa=sp+16 fp=same ra=cfa-8", "0xc chain", "0x10 " + bare, "0x14 chain",
		}},
		{"frame before the registers", "sub sp, sp, #48; stp x29, x30, [sp, #32]; add x29, sp, #32; ldp x29, x30, [sp, #32]; add sp, sp, #48; ret", []string{
			"0x0 " + bare, "0x4 cfa=sp+48 fp=same ra=same", "0x8 cfa=sp+48 fp=same ra=cfa-8", "0xc chain", "0x10 cfa=sp+48 fp=same ra=cfa-8",
			"0x14 " + bare, "0x18 chain",
		}},
		{"large frame", "sub sp, sp, #1, lsl #12; mov x16, #16; movk x16, #1, lsl #16; sub sp, sp, x16; mov x16, #16; movk x16, #1, lsl #16; add sp, sp, x16; add sp, sp, #1, lsl #12; ret", []string{
			"0x0 " + bare, "0x4 cfa=sp+4096 fp=same ra=same", "0x10 cfa=sp+69648 fp=same ra=same", "0x1c cfa=sp+4096 fp=same ra=same", "0x20 " + bare, "0x24 none",
		}},
		// The stack pointer is known only by the frame pointer.
		{"allocation", "stp x29, x30, [sp, #-16]!; mov x29, sp; sub sp, sp, x0; mov sp, x29; ldp x29, x30, [sp], #16; ret", []string{
			"0x0 " + bare, "0x4 cfa=sp+16 fp=same ra=cfa-8", "0x8 chain", "0x14 " + bare, "0x18 chain",
		}},
		{"alignment", "stp x29, x30, [sp, #-16]!; mov x29, sp; sub x9, sp, #96; and sp, x9, #-64; str x0, [sp, #8]; mov sp, x29; ldp x29, x30, [sp], #16; ret", []string{
			"0x0 " + bare, "0x4 cfa=sp+16 fp=same ra=cfa-8", "0x8 chain", "0x1c " + bare, "0x20 chain",
		}},
		{"early return", "cbz x0, 1f; str x30, [sp, #-16]!; bl .+256; ldr x30, [sp], #16; 1: ret", []string{
			"0x0 " + bare, "0x8 cfa=sp+16 fp=same ra=cfa-16", "0x10 " + bare, "0x14 none",
		}},
		{"two frames", "cbz x0, 1f; sub sp, sp, #16; 1: nop; ret", []string{"0x0 " + bare, "0x8 none"}},
		{"unbalanced", "sub sp, sp, #16; ret", nil},
		// The called function may keep a register that calls may change: the walkers check that.
		{"return address in a register", "mov x15, x30; bl .+256; mov x30, x15; ret", []string{"0x0 " + bare, "0x4 cfa=sp+0 fp=same ra=r15", "0x8 none"}},
		{"return address in a kept register", "str x19, [sp, #-16]!; mov x19, x30; bl .+256; mov x30, x19; ldr x19, [sp], #16; ret", []string{
			"0x0 " + bare, "0x4 cfa=sp+16 fp=same ra=same", "0x8 cfa=sp+16 fp=same ra=r19", "0x14 " + bare, "0x18 none",
		}},
		// Whoever calls without saving the return address does not return. Another function follows.
		{"call without a frame", "str x0, [sp, #-16]!; bl .+256; stp x29, x30, [sp, #-16]!; ldp x29, x30, [sp], #16; ret", []string{
			"0x0 " + bare, "0x4 cfa=sp+16 fp=same ra=same", "0x8 " + bare, "0xc cfa=sp+16 fp=same ra=cfa-8", "0x10 " + bare, "0x14 none",
		}},
		{"tail call", "str x30, [sp, #-16]!; bl .+256; ldr x30, [sp], #16; b .+244", []string{
			"0x0 " + bare, "0x4 cfa=sp+16 fp=same ra=cfa-16", "0xc " + bare, "0x10 none",
		}},
		{"trap", "cbz x0, 1f; ret; 1: brk #1; sub sp, sp, #16", []string{"0x0 " + bare, "0xc none"}},
		{"switch of bytes", `cmp w0, #2; b.hi 9f; adr x1, 2f; ldrb w1, [x1, w0, uxtw]; adr x2, 1f; add x1, x2, w1, sxtb #2; br x1
			1: ret; sub sp, sp, #16; add sp, sp, #16; ret; nop; ret; 9: ret; 2: .byte 0, 1, 4, 0x7f`, []string{
			"0x0 " + bare, "0x24 cfa=sp+16 fp=same ra=same", "0x28 " + bare, "0x38 none",
		}},
		{"switch of words", `cmp x0, #1; b.hi 9f; adr x8, 2f; ldrsw x9, [x8, x0, lsl #2]; add x8, x8, x9; br x8
			1: str x0, [sp, #-16]!; add sp, sp, #16; ret; 9: ret; 2: .word 1b-2b, 9b-2b`, []string{
			"0x0 " + bare, "0x1c cfa=sp+16 fp=same ra=same", "0x20 " + bare, "0x28 none",
		}},
		{"switch without a bound", "adr x1, 2f; ldrb w1, [x1, w0, uxtw]; adr x2, 1f; add x1, x2, w1, sxtb #2; br x1; 1: ret; nop; ret; 2: .byte 0, 2, 0, 0", []string{
			"0x0 " + bare, "0x18 none",
		}},
		{"labels", "cbz x0, 1f; adr x1, 2f; b 3f; 1: adr x1, 4f; 3: br x1; 2: str x0, [sp, #-16]!; add sp, sp, #16; 4: ret", []string{
			"0x0 " + bare, "0x18 cfa=sp+16 fp=same ra=same", "0x1c " + bare, "0x20 none",
		}},
		// A vector's size is known only at run time.
		{"scalable frame", "addvl sp, sp, #-1; str x30, [sp, #-16]!; ldr x30, [sp], #16; addvl sp, sp, #1; ret", []string{"0x0 " + bare, "0x4 none"}},
		{"stores of vectors", "str q8, [sp, #-16]!; st1 {v0.16b-v3.16b}, [sp]; ld1 {v0.2d}, [sp], #16; ret", []string{
			"0x0 " + bare, "0x4 cfa=sp+16 fp=same ra=same", "0xc " + bare, "0x10 none",
		}},
		// What overwrites the saved return address loses it.
		{"overwritten", "str x30, [sp, #-16]!; mov x30, #0; stp w1, w2, [sp]; nop; ldr x30, [sp], #16; ret", []string{
			"0x0 " + bare, "0x4 cfa=sp+16 fp=same ra=cfa-16", "0xc none",
		}},
	} {
		code := assembleARM64(t, strings.ReplaceAll(test.code, ";", "\n")+"\n")
		if diff := gocmp.Diff(test.want, codeRulesOf(t, elf.EM_AARCH64, code, 64, nil, codeAddr, codeAddr+256)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// TestCodeChangesARM64 has instructions that change registers, and those that do not.
func TestCodeChangesARM64(t *testing.T) {
	for _, test := range []struct {
		code string
		want []uint8 // without sp
		sp   string
	}{
		{"nop; paciasp; autibsp; xpaclri; bti c; dmb ish; prfm pldl1keep, [x5]; cmp x5, x6; tst w5, #1; ccmp x5, #0, #0, eq; str x5, [x6]; stp x5, x7, [x6]", nil, ""},
		{"pacia x30, sp; autia x30, sp; xpaci x30", nil, ""},
		{"add x5, x6, #1; sub x7, x8, x9; orr x10, x11, #2; mov w12, w13; lsl x14, x15, #3; csel x19, x20, x21, eq; madd x22, x23, x24, x25", []uint8{5, 7, 10, 12, 14, 19, 22}, ""},
		{"mrs x5, tpidr_el0; ldr x6, [x7]; ldp x8, x9, [x10]; ldrb w11, [x12, x13]; ldr x14, .", []uint8{5, 6, 8, 9, 11, 14}, ""},
		{"ldr x5, [x6], #8; str x7, [x8, #-8]!; ldp x9, x10, [x11], #16; ld1 {v0.16b}, [x12], #16; st1 {v0.16b}, [x13], x14; ldraa x15, [x19, #8]!", []uint8{5, 6, 8, 9, 10, 11, 12, 13, 15, 19}, ""},
		{"ldxr x5, [x6]; stxr w7, x8, [x9]; ldadd x10, x11, [x12]; cas x13, x14, [x15]; swp x19, x20, [x21]; ldaxp x22, x23, [x24]", []uint8{5, 7, 11, 13, 20, 22, 23}, ""},
		{"fmov x5, d0; umov w6, v0.b[1]; fcvtzs x7, d0; fmov d0, x8; scvtf d0, x9; cntd x10; smov x11, v0.h[1]; fcvtzu w12, s0, #3", []uint8{5, 6, 7, 10, 11, 12}, ""},
		{"ldur x5, [x6, #-3]; ldapur x7, [x8, #1]; stlur x9, [x10]; ldtr x11, [x12]; sttr x13, [x14]; ldpsw x19, x20, [x21]; adc x22, x23, x24", []uint8{5, 7, 11, 19, 20, 22}, ""},
		{"stg sp, [sp], #16", nil, "cfa=sp-16 fp=same ra=same"},
		{"st2g x0, [sp, #-32]!", nil, "cfa=sp+32 fp=same ra=same"},
		{"stgp x5, x6, [sp, #-32]!", nil, "cfa=sp+32 fp=same ra=same"},
		{"stp q8, q9, [sp, #-64]!; ldp d8, d9, [sp], #16", nil, "cfa=sp+48 fp=same ra=same"},
		{"ld4 {v0.8b-v3.8b}, [sp], #32; ld1r {v0.2d}, [sp], #8; st3 {v0.b-v2.b}[3], [sp], #3; st1 {v0.d}[1], [sp], #8", nil, "cfa=sp-51 fp=same ra=same"},
		{"ld1 {v0.16b}, [sp], x0", nil, "none"},
		{"and sp, x0, #-16", nil, "none"},
		{"add sp, sp, w5, uxtb", nil, "none"},
		{"sub wsp, wsp, #16", nil, "none"},
		{"subs x5, sp, #16; adds xzr, x6, #1; ands xzr, x7, #1", []uint8{5}, ""},
	} {
		code := assembleARM64(t, strings.ReplaceAll(test.code, ";", "\n")+"\n")
		frame := arm64ISA.entryFrame()
		for at := 0; at < len(code); at += armSize {
			in, ok := a64{}.decode(code[at:], codeAddr)
			if !ok || in.Size != armSize {
				t.Fatalf("%s: got no instruction at %d", test.code, at)
			}
			arm64ISA.execute(&frame, &in, code[at:], 3)
		}
		var changed []uint8
		for i := range uint8(arm64SP) {
			if frame.regs[i] != frame.caller(i) {
				changed = append(changed, i)
			}
		}
		if !bytes.Equal(changed, test.want) {
			t.Errorf("%s: changes %v, want %v", test.code, changed, test.want)
		}
		if want := strings.TrimSpace(test.sp); want == "" && !frame.isAtEntry() || want != "" && frame.rule().String() != want {
			t.Errorf("%s: got rule %v, want %q", test.code, frame.rule(), want)
		}
	}
}

// TestCodeStartsARM64 is as TestCodeStarts.
func TestCodeStartsARM64(t *testing.T) {
	// Functions with jumps to unknown places: with a frame as generated code has, and as compilers make.
	for name, test := range map[string]struct{ framed, rest, end string }{
		"generated": {"stp x29, x30, [sp, #-16]!; mov x29, sp; br x0; nop; ldp x29, x30, [sp], #16; ret", "chain", "chain"},
		"compiled":  {"stp x29, x30, [sp, #-32]!; mov x29, sp; br x0; nop; ldp x29, x30, [sp], #32; ret", "cfa=fp+32 fp=cfa-32 ra=cfa-24", "cfa=fp+32 fp=cfa-32 ra=cfa-24"},
	} {
		framed := append(assembleARM64(t, strings.ReplaceAll(test.framed, ";", "\n")+"\n"), bytes.Repeat([]byte{0xcc}, 8)...)
		leaf := append(assembleARM64(t, "mov x0, #1\nret\n"), bytes.Repeat([]byte{0xcc}, 8)...)
		code := bytes.Repeat(append(framed, leaf...), 256)
		file, err := elffileOf(t, madeUpOf(elf.EM_AARCH64, code))
		if err != nil {
			t.Fatal(err)
		}
		b := &builder{file: file, arch: arm64, code: newCodeRanges(file)}
		c := newCodeRules(b)
		c.search()
		c.finish()
		table := b.table()
		const bare = "cfa=sp+0 fp=same ra=same"
		for at, want := range map[uint64]string{
			0x30: bare, 0x38: test.rest, 0x3c: test.rest, 0x40: test.rest, 0x44: bare, 0x48: test.end, 0x50: bare, 0x54: bare, 0x58: "none",
		} {
			if got := table.Lookup(codeAddr + at).String(); got != want {
				t.Errorf("%s: %#x: got %s, want %s", name, at, got, want)
			}
		}
	}
}

// TestCodeSweepARM64 finds functions that only code calls to which no way leads.
func TestCodeSweepARM64(t *testing.T) {
	assembly := `br x0
	bl 1f
	bl 2f
	bl 2f
	.p2align 8
1:	sub sp, sp, #16
	add sp, sp, #16
	ret
2:	sub sp, sp, #32
	brk #1
`
	file, err := elffileOf(t, madeUp(elf.EM_AARCH64, assembleARM64(t, assembly)))
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{file: file, arch: arm64, code: newCodeRanges(file)}
	c := newCodeRules(b)
	c.addSure(codeAddr)
	c.search()
	c.finish()
	table := b.table()
	for at, want := range map[uint64]string{0: "cfa=sp+0 fp=same ra=same", 4: "none", 0x104: "cfa=sp+16 fp=same ra=same", 0x110: "cfa=sp+32 fp=same ra=same"} {
		if got := table.Lookup(codeAddr + at).String(); got != want {
			t.Errorf("%#x: got %s, want %s", at, got, want)
		}
	}
}

// TestCodeOfARM64 compares the rules from the code of compilers with their call frame information.
func TestCodeOfARM64(t *testing.T) {
	testenv.Slow(t)
	for _, compiler := range [][]string{
		{"aarch64-linux-gnu-gcc"},
		// Otherwise, Clang describes the frame at calls alone.
		{"clang-19", "--target=aarch64-linux-gnu", "-fasynchronous-unwind-tables", "-fuse-ld=bfd"},
	} {
		tool := testenv.Tool(t, compiler[0])
		for _, flags := range []string{
			"-O0", "-O1", "-O2", "-Os -mbranch-protection=standard -fomit-frame-pointer", "-O3 -mbranch-protection=standard -s", "-O2 -fstack-protector-all -fstack-clash-protection",
		} {
			path := filepath.Join(t.TempDir(), "undescribed")
			args := append(append(compiler[1:len(compiler):len(compiler)], strings.Fields(flags)...), "-w", "-o", path, "testdata/undescribed.c")
			if out, err := testenv.Command(t, tool, args...).CombinedOutput(); err != nil {
				t.Fatalf("%s %s: %v: %s", compiler[0], flags, err, out)
			}
			a := compareCode(t, path)
			t.Logf("%s %s: %d bytes described, %d equal", compiler[0], flags, a.described, a.equal)
			if a.functions > 0 {
				t.Errorf("%s %s: got rules that contradict call frame information: %s", compiler[0], flags, strings.Join(a.examples, "; "))
			}
			if a.equal < a.described/2 {
				t.Errorf("%s %s: got rules for %d bytes, want at least half of %d", compiler[0], flags, a.equal, a.described)
			}
		}
	}
}
