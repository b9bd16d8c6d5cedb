package unwind

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/elffile/elftest"
)

// listing formats a table as lines, with offsets from the start of the code.
func listing(t *Table) []string {
	var out []string
	t.Each(func(addr uint64, r Rule) bool {
		out = append(out, fmt.Sprintf("%#x %v", addr-codeAddr, r))
		return true
	})
	return out
}

// program joins bytes and byte slices.
func program(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = append(b, byte(p))
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

// expr is an expression with its length.
func expr(parts ...any) []byte {
	b := program(parts...)
	return append([]byte{byte(len(b))}, b...)
}

func sleb(v int64) []byte {
	var b []byte
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

func uleb(v uint64) []byte { return binary.AppendUvarint(nil, v) }

const (
	sp8 = "cfa=sp+8 fp=same ra=cfa-8"
	end = "none"
)

// TestPrograms runs programs of a function of 64 bytes at the start of the code.
func TestPrograms(t *testing.T) {
	breg := func(reg int, off int64) []byte { return program(opBreg0+reg, sleb(off)) }
	tests := []struct {
		name    string
		machine elf.Machine
		signal  bool
		program []byte
		want    []string // up to the end of the function
	}{
		{"empty", elf.EM_X86_64, false, nil, []string{"0x0 " + sp8}},
		{"frame pointer", elf.EM_X86_64, false, program(
			cfaAdvanceLoc|1, cfaDefCFAOffset, 16, cfaOffset|amd64FP, 2,
			cfaAdvanceLoc|3, cfaDefCFARegister, amd64FP,
			cfaAdvanceLoc1, 40, cfaDefCFA, amd64SP, 8,
		), []string{
			"0x0 " + sp8,
			"0x1 cfa=sp+16 fp=cfa-16 ra=cfa-8",
			"0x4 cfa=fp+16 fp=cfa-16 ra=cfa-8",
			"0x2c cfa=sp+8 fp=cfa-16 ra=cfa-8",
		}},
		{"base register", elf.EM_X86_64, false, program(
			cfaAdvanceLoc|1, cfaDefCFAOffset, 16, cfaOffset|amd64Base, 2,
			cfaAdvanceLoc|1, cfaRestore|amd64Base, cfaAdvanceLoc|1, cfaSameValue, amd64Base, cfaOffset|amd64Base, 254&0x7f|0x80, 1,
			cfaAdvanceLoc|1, cfaOffsetExtended, amd64Base, uleb(255),
			cfaAdvanceLoc|1, cfaRegister, amd64Base, 12,
			cfaAdvanceLoc|1, cfaRestore|amd64Base, cfaDefCFA, amd64Base, 32,
		), []string{
			"0x0 " + sp8,
			"0x1 cfa=sp+16 base=cfa-16 fp=same ra=cfa-8",
			"0x2 cfa=sp+16 fp=same ra=cfa-8",
			"0x3 cfa=sp+16 base=cfa-2032 fp=same ra=cfa-8",
			"0x4 cfa=sp+16 base=unknown fp=same ra=cfa-8",
			"0x6 cfa=r3+32 fp=same ra=cfa-8",
		}},
		{"remember, restore", elf.EM_X86_64, false, program(
			cfaDefCFAOffset, 16, cfaOffset|amd64FP, 2, cfaAdvanceLoc|8,
			cfaRememberState, cfaDefCFAOffset, 8, cfaRestore|amd64FP, cfaAdvanceLoc2, 1, 0, cfaRestoreState,
		), []string{
			"0x0 cfa=sp+16 fp=cfa-16 ra=cfa-8", "0x8 " + sp8, "0x9 cfa=sp+16 fp=cfa-16 ra=cfa-8",
		}},
		{"all forms of offsets", elf.EM_X86_64, false, program(
			cfaOffsetExtended, amd64FP, 3, cfaAdvanceLoc|1,
			cfaOffsetExtendedSF, amd64FP, sleb(4), cfaAdvanceLoc|1,
			cfaOffsetExtendedSF, amd64FP, sleb(-4), cfaAdvanceLoc|1,
			cfaGNUNegativeOffsetExtended, amd64FP, 5, cfaAdvanceLoc|1,
			cfaDefCFASF, amd64SP, sleb(-4), cfaAdvanceLoc|1,
			cfaDefCFAOffsetSF, sleb(-5), cfaAdvanceLoc|1,
			cfaRestoreExtended, amd64FP, cfaAdvanceLoc|1,
			cfaRegister, amd64FP, 3, cfaAdvanceLoc|1,
			cfaSameValue, amd64FP, cfaAdvanceLoc|1,
			cfaUndefined, amd64FP, cfaAdvanceLoc|1,
			cfaValOffset, amd64FP, 2, cfaAdvanceLoc4, 1, 0, 0, 0,
			cfaSameValue, amd64FP, cfaMIPSAdvanceLoc8, 1, 0, 0, 0, 0, 0, 0, 0,
			cfaValExpression, amd64FP, expr(opLit0), cfaGNUArgsSize, 8, cfaNop,
		), []string{
			"0x0 cfa=sp+8 fp=cfa-24 ra=cfa-8", "0x1 cfa=sp+8 fp=cfa-32 ra=cfa-8", "0x2 cfa=sp+8 fp=cfa+32 ra=cfa-8",
			"0x3 cfa=sp+8 fp=cfa+40 ra=cfa-8", "0x4 cfa=sp+32 fp=cfa+40 ra=cfa-8", "0x5 cfa=sp+40 fp=cfa+40 ra=cfa-8",
			"0x6 cfa=sp+40 fp=same ra=cfa-8", "0x7 cfa=sp+40 fp=r3 ra=cfa-8", "0x8 cfa=sp+40 fp=same ra=cfa-8",
			"0x9 cfa=sp+40 fp=unknown ra=cfa-8", "0xb cfa=sp+40 fp=same ra=cfa-8", "0xc cfa=sp+40 fp=unknown ra=cfa-8",
		}},
		{"end of stack", elf.EM_X86_64, false, program(cfaUndefined, amd64RA), []string{"0x0 end"}},
		{"absolute location", elf.EM_X86_64, false, program(
			cfaSetLoc, binary.LittleEndian.AppendUint64(nil, codeAddr+7), cfaDefCFAOffset, 24,
		), []string{"0x0 " + sp8, "0x7 cfa=sp+24 fp=same ra=cfa-8"}},
		{"beyond the function", elf.EM_X86_64, false, program(
			cfaAdvanceLoc4, 0xff, 0xff, 0xff, 0xff, cfaDefCFAOffset, 24,
		), []string{"0x0 " + sp8}},
		{"aligned stack", elf.EM_X86_64, false, program(
			cfaAdvanceLoc|5, cfaDefCFA, 10, 0,
			cfaAdvanceLoc|12, cfaExpression, amd64FP, expr(breg(amd64FP, 0)),
			cfaAdvanceLoc|4, cfaDefCFAExpression, expr(breg(amd64FP, -8), opDeref),
		), []string{
			"0x0 " + sp8,
			"0x5 cfa=r10+0 fp=same ra=cfa-8",
			"0x11 cfa=r10+0 fp=fp+0 ra=cfa-8",
			"0x15 cfa=*(fp-8)+0 fp=fp+0 ra=cfa-8",
		}},
		{"assembly's saved stack pointer", elf.EM_X86_64, false, program(
			cfaDefCFAExpression, expr(breg(amd64SP, 152), opDeref, opPlusUconst, 8), cfaAdvanceLoc|1,
			cfaDefCFAExpression, expr(opBregx, amd64SP, sleb(152), opDeref, opConst1u, 8, opPlus), cfaAdvanceLoc|1,
			cfaDefCFAExpression, expr(breg(amd64SP, 160), opConst2s, 0xf8, 0xff, opPlus, opDeref, opConst1s, 0xf8, opMinus),
		), []string{"0x0 cfa=*(sp+152)+8 fp=same ra=cfa-8"}},
		{"register after an expression", elf.EM_X86_64, false, program(
			cfaDefCFA, 0, 56, cfaAdvanceLoc|1, cfaDefCFAExpression, expr(breg(amd64SP, 536), opDeref, opPlusUconst, 56),
			cfaAdvanceLoc|1, cfaDefCFARegister, amd64SP,
		), []string{
			"0x0 cfa=r0+56 fp=same ra=cfa-8", "0x1 cfa=*(sp+536)+56 fp=same ra=cfa-8", "0x2 cfa=sp+56 fp=same ra=cfa-8",
		}},
		{"procedure linkage table", elf.EM_X86_64, false, program(
			cfaDefCFAExpression, expr(breg(amd64SP, 8), breg(amd64RA, 0), opLit0+15, opAnd, opLit0+11, opGe, opLit0+3, opShl, opPlus),
		), []string{"0x0 cfa=sp+8+((pc&15)>=11)*8 fp=same ra=cfa-8"}},
		{"saved relative to the CFA by an expression", elf.EM_X86_64, false, program(
			cfaExpression, amd64FP, expr(opConst2u, 16, 0, opMinus),
		), []string{"0x0 cfa=sp+8 fp=cfa-16 ra=cfa-8"}},
		{"return address in a register", elf.EM_X86_64, false, program(
			cfaRegister, amd64RA, 5, cfaDefCFAOffset, 0,
		), []string{"0x0 cfa=sp+0 fp=same ra=r5"}},
		{"signal trampoline", elf.EM_X86_64, true, program(
			cfaDefCFAExpression, expr(breg(amd64SP, 160), opDeref),
			cfaExpression, amd64FP, expr(breg(amd64SP, 120)), cfaExpression, amd64RA, expr(breg(amd64SP, 168)),
		), []string{"0x0 signal frame at sp+0"}},
		{"another signal trampoline", elf.EM_X86_64, true, program(
			cfaExpression, amd64RA, expr(breg(amd64SP, 168)),
		), []string{"0x0 unsupported"}},
		{"unsupported", elf.EM_X86_64, false, program(
			cfaAdvanceLoc|1, cfaDefCFAExpression, expr(breg(9, 0), opLit0+8, opPlus, opDeref),
			cfaAdvanceLoc|1, cfaDefCFA, 5, 0, cfaOffset|amd64SP, 1, // setcontext
			cfaAdvanceLoc|1, cfaDefCFA, 4, 0, cfaRegister, amd64SP, 1, // the return address is relative to rsi
			cfaAdvanceLoc|1, cfaDefCFA, amd64SP, 8, cfaValExpression, amd64SP, expr(opLit0), cfaAdvanceLoc|1, cfaRestoreExtended, amd64SP,
			cfaAdvanceLoc|1, cfaSameValue, amd64RA,
			cfaAdvanceLoc|1, cfaOffset|amd64RA, 1, cfaDefCFA, uleb(1<<40), 8,
			cfaAdvanceLoc|1, cfaDefCFA, amd64SP, uleb(1<<40),
		), []string{"0x0 " + sp8, "0x1 unsupported", "0x5 " + sp8, "0x6 unsupported"}},
		{"above an array", elf.EM_X86_64, false, program(
			cfaDefCFAExpression, expr(breg(amd64SP, 8), breg(9, 0), opLit0+8, opMul, opPlus, opDeref, opPlusUconst, 8), cfaAdvanceLoc|1,
			cfaDefCFAExpression, expr(breg(amd64SP, 8), breg(9, 8), opLit0+8, opMul, opPlus, opDeref, opPlusUconst, 8),
		), []string{"0x0 cfa=*(sp+8+r9*8)+8 fp=same ra=cfa-8", "0x1 unsupported"}},
		{"longjmp", elf.EM_X86_64, false, program(
			cfaDefCFA, 5, 0, cfaRegister, amd64SP, 8, cfaRegister, amd64FP, 9, cfaRegister, amd64RA, 1, cfaOffset|amd64Base, 0,
		), []string{"0x0 cfa=r8+0 fp=r9 ra=r1"}},
		{"the caller's stack pointer is not the CFA", elf.EM_X86_64, false, program( // Haskell's StgRun
			cfaDefCFA, amd64SP, 0, cfaOffsetExtendedSF, amd64FP, sleb(-2049), cfaOffsetExtendedSF, amd64RA, sleb(-2054),
			cfaOffsetExtendedSF, amd64Base, sleb(-2048), cfaValExpression, amd64SP, expr(breg(amd64SP, 16440)), cfaAdvanceLoc|1,
			cfaDefCFA, amd64SP, 16, cfaOffset|amd64FP, 2, cfaOffset|amd64RA, 1, cfaValOffset, amd64SP, uleb(1), cfaAdvanceLoc|1,
			cfaValOffsetSF, amd64SP, sleb(-1), cfaAdvanceLoc|1,
			cfaExpression, amd64SP, expr(breg(amd64SP, 32)), cfaAdvanceLoc|1,
			cfaOffset|amd64SP, 1, cfaAdvanceLoc|1,
			cfaValExpression, amd64SP, expr(breg(amd64FP, 16)), cfaAdvanceLoc|1,
			cfaValExpression, amd64SP, expr(breg(amd64FP, 16), opDeref), cfaAdvanceLoc|1,
			cfaValExpression, amd64SP, expr(opPlusUconst, 8),
		), []string{
			"0x0 cfa=sp+16440 base=cfa-56 fp=cfa-48 ra=cfa-8",
			"0x1 cfa=sp+8 base=unknown fp=cfa-8 ra=cfa+0",
			"0x2 cfa=sp+24 base=unknown fp=cfa-24 ra=cfa-16",
			"0x3 cfa=*(sp+32)+0 fp=sp+0 ra=sp+8",
			"0x4 cfa=*(sp+8)+0 fp=sp+0 ra=sp+8",
			"0x5 cfa=fp+16 base=unknown fp=sp+0 ra=sp+8",
			"0x6 cfa=*(fp+16)+0 fp=sp+0 ra=sp+8",
			"0x7 cfa=sp+24 base=unknown fp=cfa-24 ra=cfa-16",
		}},
		{"unknown instruction", elf.EM_X86_64, false, program(cfaAdvanceLoc|1, 0x3f, cfaDefCFAOffset, 16),
			[]string{"0x0 " + sp8, "0x1 unsupported"}},
		{"nothing remembered", elf.EM_X86_64, false, program(cfaAdvanceLoc|1, cfaRestoreState),
			[]string{"0x0 " + sp8, "0x1 unsupported"}},
		{"remembered without end", elf.EM_X86_64, false, bytes.Repeat([]byte{cfaRememberState}, maxRemembered+1),
			[]string{"0x0 unsupported"}},
		{"truncated operand", elf.EM_X86_64, false, program(
			cfaAdvanceLoc|1, cfaNop, cfaNop, cfaNop, cfaDefCFAExpression, 0x7f,
		), []string{"0x0 " + sp8, "0x1 unsupported"}},

		{"arm64", elf.EM_AARCH64, false, program(
			cfaAArch64NegateRAState,
			cfaAdvanceLoc|1, cfaDefCFAOffset, 48, cfaOffset|arm64FP, 6, cfaOffset|arm64RA, 5,
			cfaAdvanceLoc|1, cfaDefCFARegister, arm64FP,
			cfaAdvanceLoc|2, cfaAArch64NegateRAStateWithP, cfaAArch64SetRAState, 2, sleb(-8), cfaDefCFA, arm64SP, 0, cfaRestore|arm64FP, cfaRestore|arm64RA,
		), []string{
			"0x0 cfa=sp+0 fp=same ra=same",
			"0x4 cfa=sp+48 fp=cfa-48 ra=cfa-40",
			"0x8 cfa=fp+48 fp=cfa-48 ra=cfa-40",
			"0x10 cfa=sp+0 fp=same ra=same",
		}},
		{"arm64, end of stack", elf.EM_AARCH64, false, program(cfaUndefined, arm64RA), []string{"0x0 end"}},
		{"arm64, old vdso", elf.EM_AARCH64, true, program(
			cfaDefCFA, arm64FP, 0, cfaOffset|arm64FP, 0, cfaOffsetExtendedSF, arm64RA, sleb(-1),
		), []string{"0x0 signal frame at sp+0"}},
	}
	for _, test := range tests {
		for _, form := range []string{".eh_frame", ".debug_frame", "64-bit .debug_frame"} {
			t.Run(test.name+"/"+form, func(t *testing.T) {
				wide := strings.HasPrefix(form, "64")
				f := frames{eh: form == ".eh_frame", wide: wide}
				augmentation := "z"
				if test.signal {
					augmentation = "zS"
				}
				f.cie(test.machine, augmentation, defaultCIE(test.machine)...)
				f.fde(codeAddr, 64, true, test.program...)
				table, err := compileBytes(t, madeUp(test.machine, nil, elftest.Section{
					Name: strings.TrimPrefix(form, "64-bit "), Content: f.b,
				}), Options{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(append(test.want, "0x40 none"), listing(table)); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// TestLayers compiles functions that overlap, are repeated, or are outside the code.
func TestLayers(t *testing.T) {
	f := frames{eh: true}
	f.cie(elf.EM_X86_64, "", defaultCIE(elf.EM_X86_64)...)
	f.fde(codeAddr+0x2000, 0x100, false) // out of order
	f.fde(codeAddr, 0x40, false, cfaAdvanceLoc|0x30, cfaDefCFAOffset, 16)
	f.fde(codeAddr, 0x20, false, cfaDefCFAOffset, 99)         // a repetition
	f.fde(codeAddr+0x10, 0x10, false, cfaDefCFAOffset, 24)    // within another
	f.fde(0, 0x10, false)                                     // an FDE that the linker dropped
	f.fde(codeAddr+0x9000, 0, false)                          // another one
	f.fde(1<<40, 0x10, false)                                 // outside the code
	f.fde(codeAddr+0xfff0, 0x1000, false, cfaDefCFAOffset, 8) // beyond the end
	f.b = append(f.b, 0, 0, 0, 0)                             // a terminator between two tables
	f.cie(elf.EM_X86_64, "", cfaDefCFA, amd64SP, 32, cfaOffset|amd64RA, 1)
	f.fde(codeAddr+0x3000, 8, false)
	d := frames{}
	d.cie(elf.EM_X86_64, "", cfaDefCFA, amd64FP, 16, cfaOffset|amd64RA, 1)
	d.fde(codeAddr+0x1000, 0x1800, false, cfaAdvanceLoc2, 0x80, 0x10, cfaDefCFAOffset, 32)

	var zipped bytes.Buffer
	zipped.Write(elftest.Struct(elf.Chdr64{Type: uint32(elf.COMPRESS_ZLIB), Size: uint64(len(d.b)), Addralign: 8}))
	z := zlib.NewWriter(&zipped)
	z.Write(d.b)
	z.Close()

	eh := elftest.Section{Name: ".eh_frame", Content: f.b}
	debug := elftest.Section{Name: ".debug_frame", Content: d.b}
	compressed := elftest.Section{Name: ".debug_frame", Flags: elf.SHF_COMPRESSED, Content: zipped.Bytes()}
	want := []string{
		"0x0 " + sp8,
		"0x10 cfa=sp+24 fp=same ra=cfa-8",
		"0x20 none",
		"0x1000 cfa=fp+16 fp=same ra=cfa-8",
		"0x2000 " + sp8,
		"0x2100 cfa=fp+32 fp=same ra=cfa-8",
		"0x2800 none",
		"0x3000 cfa=sp+32 fp=same ra=cfa-8",
		"0x3008 none",
		"0xfff0 " + sp8,
	}
	separate, err := elffileOf(t, madeUp(elf.EM_X86_64, nil, debug))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file []byte
		opt  Options
	}{
		"both":       {madeUp(elf.EM_X86_64, nil, eh, debug), Options{}},
		"compressed": {madeUp(elf.EM_X86_64, nil, eh, compressed), Options{Workers: 1}},
		"separate":   {madeUp(elf.EM_X86_64, nil, eh), Options{Debug: func() (*elffile.File, error) { return separate, nil }}},
	} {
		table, err := compileBytes(t, test.file, test.opt)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, listing(table)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if table.Stats.Damaged != 0 {
			t.Error(table.Stats.Damage)
		}
	}
}

// TestSeparate checks when the separate debug file is opened, and that a table is
// compiled without it.
func TestSeparate(t *testing.T) {
	section := func(name string, functions ...uint64) elftest.Section {
		f := frames{eh: name == ".eh_frame"}
		f.cie(elf.EM_X86_64, "", defaultCIE(elf.EM_X86_64)...)
		for at := range slices.Chunk(functions, 2) {
			f.fde(at[0], at[1]-at[0], false)
		}
		return elftest.Section{Name: name, Content: f.b}
	}
	const half, end = codeAddr + 32<<10, codeAddr + 64<<10
	all := section(".eh_frame", codeAddr, half, half+alignment, end)
	some := section(".eh_frame", codeAddr, half, half+alignment+1, end)
	wrong := errors.New("wrong file")
	for _, test := range []struct {
		name    string
		file    []byte
		opt     Options
		asked   bool
		damaged int
	}{
		{"all is described", madeUp(elf.EM_X86_64, nil, all), Options{}, false, 0},
		{"a function is not", madeUp(elf.EM_X86_64, nil, some), Options{}, true, 1},
		{"by .debug_frame", madeUp(elf.EM_X86_64, nil, some, section(".debug_frame")), Options{}, false, 0},
		{"Go", madeUp(elf.EM_X86_64, nil, some, goBuildinfo), Options{}, false, 0},
	} {
		asked := false
		test.opt.Debug = func() (*elffile.File, error) {
			asked = true
			return nil, wrong
		}
		table, err := compileBytes(t, test.file, test.opt)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if asked != test.asked || table.Stats.Damaged != test.damaged {
			t.Errorf("%s: got asked %v, %d damaged; want %v, %d", test.name, asked, table.Stats.Damaged, test.asked, test.damaged)
		}
		if asked && !errors.Is(table.Stats.Damage, wrong) {
			t.Errorf("%s: got damage %v, want %v", test.name, table.Stats.Damage, wrong)
		}
		if got := table.Lookup(codeAddr + 8).String(); got != sp8 {
			t.Errorf("%s: got rule %s for code that .eh_frame describes, want %s", test.name, got, sp8)
		}
	}
}

// TestSynthetic checks the rules for code without call frame information.
func TestSynthetic(t *testing.T) {
	plt := make([]byte, 64)
	ibt := append(make([]byte, 16), append([]byte{0xf3, 0x0f, 0x1e, 0xfa}, make([]byte, 44)...)...)
	bti := append([]byte{0x5f, 0x24, 0x03, 0xd5}, make([]byte, 60)...)
	for _, test := range []struct {
		name    string
		machine elf.Machine
		plt     []byte
		want    []string
	}{
		{"amd64", elf.EM_X86_64, plt, []string{
			"0x0 none", "0xff signal frame at sp+0", "0x109 none", "0x200 end", "0x220 none",
			"0x20000 cfa=sp+16 fp=same ra=cfa-8", "0x20006 cfa=sp+24 fp=same ra=cfa-8",
			"0x20010 cfa=sp+8+((pc&15)>=11)*8 fp=same ra=cfa-8",
		}},
		{"amd64 for IBT", elf.EM_X86_64, ibt, []string{
			"0x0 none", "0xff signal frame at sp+0", "0x109 none", "0x200 end", "0x220 none",
			"0x20000 cfa=sp+16 fp=same ra=cfa-8", "0x20006 cfa=sp+24 fp=same ra=cfa-8",
			"0x20010 cfa=sp+8+((pc&15)>=9)*8 fp=same ra=cfa-8",
		}},
		{"arm64", elf.EM_AARCH64, plt, []string{
			"0x0 none", "0xff signal frame at sp+0", "0x108 none", "0x200 end", "0x220 none",
			"0x20000 cfa=sp+0 fp=same ra=same", "0x20004 cfa=sp+16 fp=same ra=cfa-8", "0x20020 cfa=sp+0 fp=same ra=same",
		}},
		{"arm64 for BTI", elf.EM_AARCH64, bti, []string{
			"0x0 none", "0xff signal frame at sp+0", "0x108 none", "0x200 end", "0x220 none",
			"0x20000 cfa=sp+0 fp=same ra=same", "0x20008 cfa=sp+16 fp=same ra=cfa-8", "0x20020 cfa=sp+0 fp=same ra=same",
		}},
	} {
		text := make([]byte, 0x1000)
		copy(text[0x100:], archOf(test.machine).sigreturn)
		f := frames{eh: true}
		f.cie(test.machine, "", defaultCIE(test.machine)...)
		f.fde(codeAddr+0x220, 1, false, cfaDefCFA, maxRegister, 0) // bounds the entry point
		load := func(section int) elftest.Segment {
			return elftest.Segment{Type: elf.PT_LOAD, Section: section, Prog64: elf.Prog64{Flags: uint32(elf.PF_X)}}
		}
		table, err := compileBytes(t, elftest.File{
			Machine: test.machine, Entry: codeAddr + 0x200,
			Segments: []elftest.Segment{load(2), load(1)}, // unsorted
			Sections: []elftest.Section{
				{Name: ".text", Addr: codeAddr, Content: text},
				{Name: ".plt", Addr: codeAddr + 0x20000, Content: test.plt},
				{Name: ".eh_frame", Content: f.b},
			},
		}.Bytes(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(strings.Join(test.want, "\n"), "0x220 none", "0x220 unsupported\n0x221 none", 1)
		if diff := cmp.Diff(strings.Split(want, "\n"), listing(table)); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// Coroutines made by makecontext(3) return to the first byte of a function.
func TestStartContext(t *testing.T) {
	code := make([]byte, 0x200)
	for _, at := range []int{0, 0x40, 0x80, 0xc0} {
		copy(code[at:], amd64.startContext)
	}
	f := frames{eh: true}
	f.cie(elf.EM_X86_64, "", defaultCIE(elf.EM_X86_64)...)
	f.fde(codeAddr, amd64.startContextSize, false)      // at the start of the code
	f.fde(codeAddr+0x40, amd64.startContextSize, false) // the match
	f.fde(codeAddr+0x70, 16, false)                     // the code ends after this function
	f.fde(codeAddr+0x80, amd64.startContextSize, false)
	f.fde(codeAddr+0xc0, 32, false)                      // too long
	f.fde(codeAddr+0x100, amd64.startContextSize, false) // other code
	table, err := compileBytes(t, madeUp(elf.EM_X86_64, code, elftest.Section{Name: ".eh_frame", Content: f.b}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for off := range uint64(0x120) {
		if got := table.Lookup(codeAddr+off) == (Rule{Kind: KindEnd}); got != (off == 0x3f) {
			t.Errorf("at %#x: got %v, want KindEnd: %v", off, table.Lookup(codeAddr+off), off == 0x3f)
		}
	}
}

// TestNoTable covers files without tables.
// A stack of Boost's contexts ends at the code that calls _exit after the context's function.
func TestContextEnd(t *testing.T) {
	for _, test := range []struct {
		name        string
		machine     elf.Machine
		code        []byte // at 0x40
		first, last uint64
	}{
		{"amd64", elf.EM_X86_64, []byte{0x55, 0xff, 0xe3, 0x48, 0x31, 0xff, 0xe8, 1, 2, 3, 4, 0xf4}, 0x42, 0x4b},
		{"amd64, endbr64", elf.EM_X86_64, []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x31, 0xff, 0xe8, 1, 2, 3, 4, 0xf4}, 0x3f, 0x4c},
		{"amd64, another instruction after the call", elf.EM_X86_64, []byte{0x55, 0xff, 0xe3, 0x48, 0x31, 0xff, 0xe8, 1, 2, 3, 4, 0xc3}, 0, 0},
		{"arm64", elf.EM_AARCH64, []byte{0xc0, 0x03, 0x5f, 0xd6, 0, 0, 0x80, 0xd2, 0xa4, 0xff, 0xff, 0x97}, 0x43, 0x4b},
		{"arm64, a jump", elf.EM_AARCH64, []byte{0xc0, 0x03, 0x5f, 0xd6, 0, 0, 0x80, 0xd2, 0xa4, 0xff, 0xff, 0x17}, 0, 0},
	} {
		f := frames{eh: true}
		f.cie(test.machine, "", defaultCIE(test.machine)...)
		f.fde(codeAddr, 0x20, false)
		f.fde(codeAddr+0x80, 0x80, false) // the same code, described
		code := make([]byte, 0x100)
		copy(code[0x40:], test.code)
		copy(code[0xc0:], test.code)
		table, err := compileBytes(t, madeUp(test.machine, code, elftest.Section{Name: ".eh_frame", Content: f.b}), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for off := range uint64(0x100) {
			want := test.last > 0 && off >= test.first && off <= test.last
			if got := table.Lookup(codeAddr+off) == (Rule{Kind: KindEnd}); got != want {
				t.Errorf("%s: at %#x: got %v, want KindEnd: %v", test.name, off, table.Lookup(codeAddr+off), want)
			}
		}
	}
}

func TestNoTable(t *testing.T) {
	for name, b := range map[string][]byte{
		"no section": madeUp(elf.EM_X86_64, nil),
		"machine":    madeUp(elf.EM_RISCV, nil, elftest.Section{Name: ".eh_frame", Content: []byte{0, 0, 0, 0}}),
	} {
		if _, err := compileBytes(t, b, Options{}); !errors.Is(err, ErrNoTable) {
			t.Errorf("%s: got %v, want %v", name, err, ErrNoTable)
		}
	}
}

// TestTrampoline compiles a file with only a signal trampoline, like arm64's vDSO.
func TestTrampoline(t *testing.T) {
	for _, m := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
		code := make([]byte, 0x400)
		copy(code[0x100:], archOf(m).sigreturn)
		table, err := compileBytes(t, madeUp(m, code), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r := table.Lookup(codeAddr + 0xff); r.Kind != KindSignal || table.Lookup(codeAddr+0x200) != (Rule{}) {
			t.Errorf("%v: got %v at the trampoline, want KindSignal", m, r)
		}
	}
}

// Call frame information with more rows than the limit is refused.
func TestMaxRows(t *testing.T) {
	f := frames{eh: true}
	f.cie(elf.EM_X86_64, "", defaultCIE(elf.EM_X86_64)...)
	for i := range uint64(3) {
		f.fde(codeAddr+i*64, 64, false, cfaAdvanceLoc|1, cfaDefCFAOffset, 16)
	}
	file := func() []byte { return madeUp(elf.EM_X86_64, nil, elftest.Section{Name: ".eh_frame", Content: f.b}) }
	if _, err := compileBytes(t, file(), Options{MaxRows: 6}); err != nil {
		t.Errorf("6 rows: got %v", err)
	}
	if _, err := compileBytes(t, file(), Options{MaxRows: 5}); err == nil || !strings.Contains(err.Error(), "more than 5 rows in .eh_frame") {
		t.Errorf("6 rows with a limit of 5: got %v, want %q in it", err, "more than 5 rows in .eh_frame")
	}
}

// TestDamaged compiles damaged entries next to valid ones.
func TestDamaged(t *testing.T) {
	good := func(f *frames) {
		f.cie(elf.EM_X86_64, "", defaultCIE(elf.EM_X86_64)...)
		f.fde(codeAddr, 64, false)
	}
	for name, test := range map[string]struct {
		add  func(f *frames)
		want string
	}{
		"length":       {func(f *frames) { f.b = append(f.b, 1, 2, 3, 4, 5) }, "entry of 67305989 bytes"},
		"end":          {func(f *frames) { f.b = append(f.b, 1, 2, 3) }, "entry of 4 bytes"},
		"no ID":        {func(f *frames) { f.b = append(f.b, 1, 0, 0, 0, 9) }, "entry without an ID"},
		"no CIE":       {func(f *frames) { f.cieAt = 5; f.fde(codeAddr+128, 1, false) }, "no CIE there"},
		"CIE beyond":   {func(f *frames) { f.cieAt = -10000; f.fde(codeAddr+128, 1, false) }, "no CIE there"},
		"augmentation": {func(f *frames) { f.cie(elf.EM_X86_64, "armcc+"); f.fde(codeAddr+128, 1, false) }, `unknown augmentation "armcc+"`},
		"CIE program":  {func(f *frames) { f.cie(elf.EM_X86_64, "", 0x3f); f.fde(codeAddr+128, 1, false) }, "CIE with a damaged program"},
		"program":      {func(f *frames) { f.fde(codeAddr+128, 1, false, 0x3f) }, "FDE of 0x401080 with a damaged program"},
		"short":        {func(f *frames) { f.b = append(f.b, 6, 0, 0, 0, byte(len(f.b)+4), 0, 0, 0, 1, 1) }, "FDE ends too early"},
	} {
		f := frames{eh: true}
		good(&f)
		test.add(&f)
		table, err := compileBytes(t, madeUp(elf.EM_X86_64, nil, elftest.Section{Name: ".eh_frame", Content: f.b}), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if table.Stats.Damaged != 1 || !strings.Contains(fmt.Sprint(table.Stats.Damage), test.want) {
			t.Errorf("%s: got %d damaged: %v; want 1: %s", name, table.Stats.Damaged, table.Stats.Damage, test.want)
		}
		if r := table.Lookup(codeAddr + 10); r.String() != sp8 {
			t.Errorf("%s: got %v for the function before, want %v", name, r, sp8)
		}
	}
}

// A .debug_frame that cannot be read does not affect the table of .eh_frame.
func TestDamagedDebugFrame(t *testing.T) {
	f := frames{eh: true}
	f.cie(elf.EM_X86_64, "", defaultCIE(elf.EM_X86_64)...)
	f.fde(codeAddr, 64, false)
	eh := elftest.Section{Name: ".eh_frame", Content: f.b}
	broken := elftest.Section{Name: ".debug_frame", Flags: elf.SHF_COMPRESSED, Content: []byte("not compressed: too short")}
	table, err := compileBytes(t, madeUp(elf.EM_X86_64, nil, eh, broken), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if table.Stats.Damaged != 1 || table.Stats.Damage == nil || table.Lookup(codeAddr+10).String() != sp8 {
		t.Errorf("got %+v and %v for a function of .eh_frame, want 1 damaged and %v", table.Stats, table.Lookup(codeAddr+10), sp8)
	}
	if _, err := compileBytes(t, madeUp(elf.EM_X86_64, nil, broken), Options{}); err == nil {
		t.Error("only a broken .debug_frame: got no error")
	}
}

// TestNoSections compiles a file without section headers.
func TestNoSections(t *testing.T) {
	f := frames{eh: true}
	f.cie(elf.EM_X86_64, "", defaultCIE(elf.EM_X86_64)...)
	f.fde(codeAddr, 64, false)
	const headerAddr, frameAddr = 0x600000, 0x700000
	// Encodings: 0x1b is pc-relative and signed, 4 bytes; 0xff means omitted.
	header := program(1, 0x1b, 0, 0, binary.LittleEndian.AppendUint32(nil, frameAddr-headerAddr-4), 0, 0, 0, 0)
	file := func(header []byte) []byte {
		load := func(section int, flags elf.ProgFlag) elftest.Segment {
			return elftest.Segment{Type: elf.PT_LOAD, Section: section, Prog64: elf.Prog64{Flags: uint32(flags)}}
		}
		b := elftest.File{
			Segments: []elftest.Segment{
				load(1, elf.PF_X), load(2, 0), load(3, 0), {Type: elf.PT_GNU_EH_FRAME, Section: 2},
			},
			Sections: []elftest.Section{
				{Name: ".text", Addr: codeAddr, Content: make([]byte, 4096)},
				{Name: ".eh_frame_hdr", Addr: headerAddr, Content: header},
				{Name: ".eh_frame", Addr: frameAddr, Content: f.b},
			},
		}.Bytes()
		clear(b[40:48]) // e_shoff
		clear(b[60:64]) // e_shnum, e_shstrndx
		return b
	}
	table, err := compileBytes(t, file(header), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0x0 " + sp8, "0x40 none"}, listing(table)); diff != "" {
		t.Error(diff)
	}
	for _, bad := range [][]byte{
		{2, 0x1b, 0, 0, 0, 0, 0, 0},
		{1, 0xff, 0, 0, 0, 0, 0, 0},
		{1, 0x13, 0, 0, 1, 0, 0, 0x70},
		{1, 0x02},
	} {
		if _, err := compileBytes(t, file(bad), Options{}); err == nil {
			t.Errorf("got no error for header % x", bad)
		}
	}
}
