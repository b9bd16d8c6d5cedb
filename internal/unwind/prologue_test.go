package unwind

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"fulgur/internal/symbols/callframe"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/symbols/instruction"
	"fulgur/internal/testenv"
)

// codeAgreement counts instructions by how their rule from the code compares with call frame information.
type codeAgreement struct {
	described          int // bytes with a rule in call frame information
	equal              int // bytes
	different, unclear int // instructions
	atCalls            int // of them, different ones that are calls: compilers may not describe others
	functions          int // with such instructions
	examples           []string
}

// compareCode analyzes the code of a file as if it had no call frame information, and compares the results
// with it.
func compareCode(t testing.TB, path string) (a codeAgreement) {
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := Compile(f, Options{})
	if err != nil {
		return a
	}
	bare := &builder{file: f, arch: archOf(f.Machine()), code: newCodeRanges(f)}
	c := newCodeRules(bare)
	described := &builder{file: f, arch: bare.arch, code: bare.code, workers: 1, maxRows: DefaultMaxRows}
	describe(t, described)
	for _, s := range described.spans {
		a.described += int(s.end - s.start)
	}
	covered := func(addr uint64) bool {
		for lo, hi := 0, len(described.spans); lo < hi; {
			m := (lo + hi) / 2
			switch s := &described.spans[m]; {
			case addr < s.start:
				hi = m
			case addr >= s.end:
				lo = m + 1
			default:
				return true
			}
		}
		return false
	}
	var found []comparedRule
	check := func(addr uint64, frame *codeFrame) {
		if !covered(addr) {
			return
		}
		want, got := table.Lookup(addr), frame.rule()
		in, _ := bare.arch.isa.decode(c.reader.at(addr), addr)
		if got == (Rule{}) || want.Kind == KindUnsupported || want.Kind == KindEnd || want.Kind == KindSignal || want.Kind == KindPLT {
			return
		}
		found = append(found, comparedRule{addr, in, got, want, frame.agrees(want, got)})
	}
	c.added = func() {
		c.flow.check = check
		defer func() { c.flow.check = nil }()
		var frame codeFrame
		for _, b := range c.flow.list {
			if b.proven {
				b.frame.copyTo(&frame)
				w := blockWalk{flow: &c.flow, block: b, frame: &frame, final: true}
				w.walk()
			}
		}
	}
	c.addSymbols(f)
	if inner, err := f.Embedded(); err == nil && inner != nil {
		c.addSymbols(inner)
	}
	c.addStubs()
	c.addStart()
	c.search()
	c.finish()
	made := bare.table()
	seen, shown := map[uint64]bool{}, map[uint64]bool{}
	slices.SortFunc(found, func(a, b comparedRule) int { return cmp.Compare(a.addr, b.addr) })
	for _, f := range found {
		if m := made.Lookup(f.addr); seen[f.addr] || m != f.got && !(m.Kind == KindChain && f.got.isChain()) {
			continue // functions that share code disagree
		}
		seen[f.addr] = true
		switch f.how {
		case "equal":
			a.equal += f.in.Size
			continue
		case "unclear":
			a.unclear++
		default:
			a.different++
			if f.in.Kind == instruction.Call || f.in.Kind == instruction.IndirectCall {
				a.atCalls++
			}
		}
		i, _ := slices.BinarySearchFunc(described.spans, f.addr+1, func(s span, addr uint64) int { return cmp.Compare(s.start, addr) })
		start := described.spans[i-1].start
		if shown[start] {
			continue
		}
		shown[start] = true
		if a.functions++; a.functions <= 10 {
			a.examples = append(a.examples, fmt.Sprintf("%#x (%#x) %s: got %v, want %v", f.addr, start, f.how, f.got, f.want))
		}
	}
	return a
}

// comparedRule is a rule from code.
type comparedRule struct {
	addr      uint64
	in        instruction.Instruction
	got, want Rule
	how       string // how they compare
}

func describe(t testing.TB, b *builder) {
	eh, err := callframe.OpenEH(b.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.add(eh); err != nil {
		t.Fatal(err)
	}
}

// agrees compares the rule that call frame information has for a frame with what is known of it.
func (f *codeFrame) agrees(want, got Rule) string {
	sp, fp := f.regs[f.isa.sp], f.regs[f.isa.fp]
	add := func(v value, n int64) value {
		if v.kind != valueAddress {
			return value{}
		}
		v.off += n
		return v
	}
	var cfa value
	switch want.Kind {
	case KindSP:
		cfa = add(sp, int64(want.CFA))
	case KindFP:
		cfa = add(fp, int64(want.CFA))
	case KindRegister:
		for i, n := range f.isa.dwarf {
			if n == want.Arg {
				cfa = add(f.regs[i], int64(want.CFA))
			}
		}
	case KindDerefSP:
		cfa = add(f.load(add(sp, int64(want.CFA))), int64(want.Arg))
	case KindDerefFP:
		cfa = add(f.load(add(fp, int64(want.CFA))), int64(want.Arg))
	default:
		return "kind"
	}
	switch {
	case cfa.kind == valueUnknown || cfa.base != 0:
		return "unclear"
	case cfa.off != 0:
		return "cfa"
	}
	// GCC describes pop %rbp late in functions that align their stack: only after the next instruction.
	if want.FPSlot == SlotFP && want.FP == 0 && fp == f.caller(f.isa.fp) {
		return "equal"
	}
	in := func(same uint8, s Slot, off int32) (v value) {
		switch s {
		case SlotSame:
			v = f.regs[same]
		case SlotCFA:
			v = f.at(0, int64(off))
		case SlotSP:
			v = f.load(add(sp, int64(off)))
		case SlotFP:
			v = f.load(add(fp, int64(off)))
		case SlotRegister:
			for i, n := range f.isa.dwarf {
				if int32(n) == off {
					v = f.regs[i]
				}
			}
		}
		return v
	}
	if in(f.isa.ra, want.RASlot, want.RA) != f.caller(f.isa.ra) {
		return "ra"
	}
	if in(f.isa.fp, want.FPSlot, want.FP) != f.caller(f.isa.fp) && got.FPSlot != SlotUnknown {
		return "fp"
	}
	return "equal"
}

// badFunctions is the number of functions of the C library whose call frame information differs from what their
// code does. On x86-64, mpn_add_n and mpn_submul_1 do not describe what they push, and __longjmp, __longjmp_cancel
// and ____longjmp_chk describe the frame that they go to, as on arm64 __longjmp and setcontext do.
const badFunctions = 5

// TestCodeAgainstTables compares rules from code with the call frame information of the same code, of the C
// libraries. FULGUR_UNWIND_FILES names other files, whose differences are worth a look at the disassembly: in
// some places, compilers and OpenSSL's assembly do not describe that the stack pointer changes.
func TestCodeAgainstTables(t *testing.T) {
	testenv.Slow(t)
	paths := strings.Fields(os.Getenv("FULGUR_UNWIND_FILES"))
	if len(paths) == 0 {
		for _, p := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6", "/usr/aarch64-linux-gnu/lib/libc.so.6"} {
			if _, err := os.Stat(p); err == nil {
				paths = append(paths, p)
			}
		}
	}
	if len(paths) == 0 {
		testenv.Skip(t, "needs a C library for x86-64 or arm64")
	}
	for _, path := range paths {
		a := compareCode(t, path)
		t.Logf("%s: %d bytes described, %d equal (%.1f %%); instructions of %d functions: %d different (%d calls), %d unclear", filepath.Base(path),
			a.described, a.equal, 100*float64(a.equal)/float64(max(a.described, 1)), a.functions, a.different, a.atCalls, a.unclear)
		for _, e := range a.examples {
			t.Log("   ", e)
		}
		if a.functions > badFunctions {
			t.Errorf("%s: got rules for %d functions that contradict call frame information, want at most %d", path, a.functions, badFunctions)
		}
		if a.equal < a.described/2 {
			t.Errorf("%s: got rules for %d bytes, want at least half of %d", path, a.equal, a.described)
		}
	}
}

// TestCodeStarts finds functions without symbols by the padding between them. Those that set up a frame pointer
// have rules even where their code cannot be followed, and others do not follow a frame pointer.
func TestCodeStarts(t *testing.T) {
	var code []byte
	framed := []byte{0x55, 0x48, 0x89, 0xe5, 0xff, 0xe0, 0x90, 0x5d, 0xc3} // push, mov, jmp *%rax; nop, pop, ret
	leaf := []byte{0x31, 0xc0, 0xc3}                                       // xor, ret
	for i := range 512 {
		f := framed
		if i%2 != 0 {
			f = leaf
		}
		code = append(code, f...)
		for len(code)%16 != 0 {
			code = append(code, 0xcc)
		}
	}
	file, err := elffileOf(t, madeUpOf(elf.EM_X86_64, code))
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{file: file, arch: amd64, code: newCodeRanges(file)}
	c := newCodeRules(b)
	c.search()
	c.finish()
	table := b.table()
	const bare = "cfa=sp+8 fp=same ra=cfa-8"
	for at, want := range map[uint64]string{
		0x40: bare, 0x41: "cfa=sp+16 fp=same ra=cfa-8", 0x44: "chain", 0x47: "chain", 0x48: bare, 0x50: bare, 0x52: bare, 0x53: "none",
	} {
		if got := table.Lookup(codeAddr + at).String(); got != want {
			t.Errorf("%#x: got %s, want %s", at, got, want)
		}
	}
}

// TestCode analyzes functions of 64 bytes each.
func TestCode(t *testing.T) {
	for _, test := range []struct {
		name string
		code []byte
		want []string
	}{
		{"leaf", []byte{0x31, 0xc0, 0xc3}, []string{"0x0 cfa=sp+8 fp=same ra=cfa-8", "0x3 none"}},
		{"frame pointer", []byte{0x55, 0x48, 0x89, 0xe5, 0x53, 0x5b, 0x5d, 0xc3}, []string{
			"0x0 cfa=sp+8 fp=same ra=cfa-8", "0x1 cfa=sp+16 fp=same ra=cfa-8", "0x4 chain",
			"0x7 cfa=sp+8 fp=same ra=cfa-8", "0x8 chain",
		}},
		// test %edi, %edi; je 9; sub $24, %rsp; nop; ret
		{"two frames", []byte{0x85, 0xff, 0x74, 0x05, 0x48, 0x83, 0xec, 0x18, 0x90, 0xc3}, []string{
			"0x0 cfa=sp+8 fp=same ra=cfa-8", "0x8 cfa=sp+32 fp=same ra=cfa-8", "0x9 none",
		}},
		{"unbalanced", []byte{0x48, 0x83, 0xec, 0x18, 0xc3}, nil}, // sub $24, %rsp; ret
		{"both balanced", []byte{0x85, 0xff, 0x74, 0x08, 0x48, 0x83, 0xec, 0x18, 0x48, 0x83, 0xc4, 0x18, 0xc3}, []string{
			"0x0 cfa=sp+8 fp=same ra=cfa-8", "0x8 cfa=sp+32 fp=same ra=cfa-8", "0xc cfa=sp+8 fp=same ra=cfa-8", "0xd none",
		}},
		// lea 8(%rsp), %r10; and $-32, %rsp; push -8(%r10); push %rbp; mov %rsp, %rbp; push %r10; pop %r10; pop
		// %rbp; lea -8(%r10), %rsp; ret
		{"aligned", []byte{
			0x4c, 0x8d, 0x54, 0x24, 0x08, 0x48, 0x83, 0xe4, 0xe0, 0x41, 0xff, 0x72, 0xf8, 0x55, 0x48, 0x89, 0xe5, 0x41, 0x52,
			0x41, 0x5a, 0x5d, 0x49, 0x8d, 0x62, 0xf8, 0xc3,
		}, []string{
			"0x0 cfa=sp+8 fp=same ra=cfa-8", "0x9 cfa=r10+0 fp=same ra=cfa-8", "0x11 cfa=r10+0 fp=fp+0 ra=cfa-8", "0x13 cfa=*(fp-8)+0 fp=fp+0 ra=cfa-8", "0x15 cfa=r10+0 fp=fp+0 ra=cfa-8", "0x16 cfa=r10+0 fp=same ra=cfa-8",
			"0x1a cfa=sp+8 fp=same ra=cfa-8", "0x1b none",
		}},
		// test %edi, %edi; lea 21(code), %r14; je 18; lea 24(code), %r14; jmp *%r14; push %rbx; pop %rbx; ret; ret
		{"labels", []byte{
			0x85, 0xff, 0x4c, 0x8d, 0x35, 0x0c, 0, 0, 0, 0x74, 0x07, 0x4c, 0x8d, 0x35, 0x06, 0, 0, 0, 0x41, 0xff, 0xe6, 0x53, 0x5b, 0xc3, 0xc3,
		}, []string{
			"0x0 cfa=sp+8 fp=same ra=cfa-8", "0x16 cfa=sp+16 fp=same ra=cfa-8", "0x17 cfa=sp+8 fp=same ra=cfa-8", "0x19 none",
		}},
		// and $1, %edi; lea 24(code), %rdx; movslq (%rdx,%rdi,4), %rax; add %rdx, %rax; jmp *%rax; ret: a mask is no
		// bound of the table.
		{"mask", []byte{
			0x83, 0xe7, 0x01, 0x48, 0x8d, 0x15, 0x0e, 0, 0, 0, 0x48, 0x63, 0x04, 0xba, 0x48, 0x01, 0xd0, 0xff, 0xe0, 0xc3, 0, 0, 0, 0, 0xfb, 0xff, 0xff, 0xff,
		}, []string{"0x0 cfa=sp+8 fp=same ra=cfa-8", "0x13 none"}},
		// push %rbx; call; xor %eax, %eax; pop %rbx; jmp *%rax: nothing proves that the call returns.
		{"call", []byte{0x53, 0xe8, 0x3a, 0, 0, 0, 0x31, 0xc0, 0x5b, 0xff, 0xe0}, []string{
			"0x0 cfa=sp+8 fp=same ra=cfa-8", "0x1 cfa=sp+16 fp=same ra=cfa-8", "0x6 none",
		}},
	} {
		got := codeRulesOf(t, elf.EM_X86_64, test.code, 64, nil, codeAddr)
		if diff := gocmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// TestCodeAfterCalls has a function with a call that may not return: what follows the call is another function,
// or code that the function jumps over.
func TestCodeAfterCalls(t *testing.T) {
	// sub $24, %rsp; test %edi, %edi; je 14; call 64; nop; add $24, %rsp; ret
	code := []byte{0x48, 0x83, 0xec, 0x18, 0x85, 0xff, 0x74, 0x06, 0xe8, 0x33, 0, 0, 0, 0x90, 0x48, 0x83, 0xc4, 0x18, 0xc3}
	const begin, frame, end = "0x0 cfa=sp+8 fp=same ra=cfa-8", "0x4 cfa=sp+32 fp=same ra=cfa-8", "0x12 cfa=sp+8 fp=same ra=cfa-8"
	apart := []string{begin, frame, "0xd none", "0xe cfa=sp+32 fp=same ra=cfa-8", end, "0x13 none"}
	for _, test := range []struct {
		name  string
		known func(c *codeRules)
		want  []string
	}{
		{"returns", func(*codeRules) {}, []string{begin, frame, end, "0x13 none"}},
		{"is known not to return", func(c *codeRules) {
			c.endless.add(codeAddr + 64)
			c.function(codeAddr, true)
		}, apart},
		// A call of the next function is found later. Where the code of both disagrees, nothing is known.
		{"ends the function", func(c *codeRules) {
			c.function(codeAddr, true)
			c.addSure(codeAddr + 13)
		}, apart},
	} {
		got := codeRulesOf(t, elf.EM_X86_64, code, 64, test.known, codeAddr)
		if diff := gocmp.Diff(test.want, got); diff != "" {
			t.Errorf("the call %s: %s", test.name, diff)
		}
	}
}

// TestEndlessNames recognizes functions that do not return.
func TestEndlessNames(t *testing.T) {
	for name, want := range map[string]bool{
		"abort": true, "__stack_chk_fail": true, "_ZSt17__throw_bad_allocv": true, "_ZSt24__throw_out_of_range_fmtPKcz": true,
		"__throw_nothing": false, "": false, "printf": false, "_ZSt4endlIcEv": false,
	} {
		if got := isEndless([]byte(name)); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// TestInit checks the rules of a library's .init and .fini, which no table describes. Their code is the C
// library's: it makes room for 8 bytes, and calls others.
func TestInit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so")
	if out, err := testenv.Command(t, testenv.Tool(t, "x86_64-linux-gnu-gcc"), "-shared", "-o", path, "-xc", os.DevNull).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := Compile(f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	sections, err := f.Sections()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, s := range sections {
		if s.Name != ".init" && s.Name != ".fini" {
			continue
		}
		found++
		code, err := f.Bytes(int64(s.Offset), s.Size, s.Name)
		if err != nil {
			t.Fatal(err)
		}
		start := s.Addr
		if bytes.HasPrefix(code, []byte{0xf3, 0x0f, 0x1e, 0xfa}) { // endbr64
			start += 4
		}
		for addr, want := range map[uint64]string{
			s.Addr: "cfa=sp+8 fp=same ra=cfa-8", start + 4: "cfa=sp+16 fp=same ra=cfa-8", s.Addr + s.Size - 1: "cfa=sp+8 fp=same ra=cfa-8",
		} {
			if got := table.Lookup(addr).String(); got != want {
				t.Errorf("%s+%#x: got %s, want %s", s.Name, addr-s.Addr, got, want)
			}
		}
	}
	if found != 2 {
		t.Errorf("found %d sections, want 2", found)
	}
}
