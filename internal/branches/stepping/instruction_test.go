package stepping

import (
	"encoding/hex"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

func TestDecodeX86(t *testing.T) {
	const at = 0x401000
	tests := map[string]struct {
		text string
		want instruction
	}{
		"nop":              {"90", instruction{}},
		"mov":              {"4889e5", instruction{}},
		"jmp rel8":         {"ebfe", instruction{kind: jump, target: at}},
		"jmp rel32":        {"e9fbffffff", instruction{kind: jump, target: at}},
		"call":             {"e800010000", instruction{kind: jump, target: at + 0x105}},
		"jz":               {"7410", instruction{kind: conditional, next: at + 2, target: at + 0x12}},
		"jnz hinted":       {"3e75f0", instruction{kind: conditional, next: at + 3, target: at - 0xd}},
		"bnd jnz near":     {"f20f85fa0f0000", instruction{kind: conditional, next: at + 7, target: at + 0x1001}},
		"jrcxz":            {"e302", instruction{kind: conditional, next: at + 2, target: at + 4}},
		"loop":             {"e2fe", instruction{kind: conditional, next: at + 2, target: at}},
		"ret":              {"c3", instruction{kind: jump}},
		"rep ret":          {"f3c3", instruction{kind: jump}},
		"call rax":         {"ffd0", instruction{kind: jump}},
		"notrack jmp r11":  {"3e41ffe3", instruction{kind: jump}},
		"jmp [rip]":        {"ff2500000000", instruction{kind: jump}},
		"inc [rax]":        {"ff00", instruction{}},
		"push [rax]":       {"ff30", instruction{}},
		"call far [rax]":   {"ff18", instruction{kind: sensitive}},
		"jmp far [rax]":    {"48ff28", instruction{kind: sensitive}},
		"retfq":            {"48cb", instruction{kind: sensitive}},
		"movsb":            {"a4", instruction{}},
		"rep movsb":        {"f3a4", instruction{kind: repeating}},
		"repnz scasq":      {"f248af", instruction{kind: repeating}},
		"vzeroupper":       {"c5f877", instruction{}},
		"evex":             {"62f17c48100f", instruction{}},
		"syscall":          {"0f05", instruction{kind: sensitive}},
		"sysenter":         {"0f34", instruction{kind: sensitive}},
		"int3":             {"cc", instruction{kind: sensitive}},
		"int 0x80":         {"cd80", instruction{kind: sensitive}},
		"icebp":            {"f1", instruction{kind: sensitive}},
		"pushf":            {"9c", instruction{kind: sensitive}},
		"pushfw":           {"669c", instruction{kind: sensitive}},
		"popf":             {"9d", instruction{kind: sensitive}},
		"iretq":            {"48cf", instruction{kind: sensitive}},
		"mov ss":           {"8ed0", instruction{kind: sensitive}},
		"mov ds":           {"8ed8", instruction{}},
		"xbegin":           {"c7f800000000", instruction{kind: sensitive}},
		"mov imm":          {"c70000000000", instruction{}},
		"empty":            {"", instruction{kind: sensitive}},
		"prefixes alone":   {"666666", instruction{kind: sensitive}},
		"half a jump":      {"e90000", instruction{kind: sensitive}},
		"half a condition": {"0f84", instruction{kind: sensitive}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text, err := hex.DecodeString(test.text)
			if err != nil {
				t.Fatal(err)
			}
			if got := decodeX86(text, at); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestStep(t *testing.T) {
	tests := map[string]struct {
		in       instruction
		from, to uint64
		want     step
	}{
		"on":                {instruction{}, 100, 103, straight},
		"again":             {instruction{}, 100, 100, repeated},
		"elsewhere":         {instruction{}, 100, 200, moved},
		"back":              {instruction{}, 100, 98, moved},
		"taken":             {instruction{conditional, 102, 200}, 100, 200, taken},
		"not taken":         {instruction{conditional, 102, 200}, 100, 102, straight},
		"to the next":       {instruction{conditional, 102, 102}, 100, 102, straight},
		"to itself":         {instruction{conditional, 102, 100}, 100, 100, taken},
		"condition, moved":  {instruction{conditional, 102, 200}, 100, 300, moved},
		"jump":              {instruction{jump, 0, 200}, 100, 200, taken},
		"jump, moved":       {instruction{jump, 0, 200}, 100, 300, moved},
		"indirect":          {instruction{jump, 0, 0}, 100, 300, taken},
		"jump to the next":  {instruction{jump, 0, 102}, 100, 102, taken},
		"jump around zero":  {instruction{jump, 0, 0}, 100, 0, taken},
		"on around the end": {instruction{}, ^uint64(0), 2, straight},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.in.step(test.from, test.to); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// disassembled is an instruction in objdump's output.
type disassembled struct {
	addr     uint64
	text     []byte
	mnemonic string
	operands string
}

// prefixes are objdump's names of the prefixes of branches.
var prefixes = []string{"addr32", "bnd", "cs", "data16", "ds", "notrack", "repz", "repnz"}

// disassemble returns the instructions of a program.
func disassemble(t *testing.T, objdump, bin string) []disassembled {
	t.Helper()
	out, err := exec.Command(objdump, "-d", "--insn-width=16", "--section=.text", "--section=.plt", bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []disassembled
	for line := range strings.Lines(string(out)) {
		// "  401000:<tab>f3 0f 1e fa   <tab>endbr64"
		columns := strings.SplitN(line, "\t", 3)
		if len(columns) < 3 {
			continue
		}
		words := strings.Fields(columns[2])
		for len(words) > 1 && slices.Contains(prefixes, words[0]) {
			words = words[1:]
		}
		d := disassembled{mnemonic: words[0], operands: strings.Join(words[1:], " ")}
		d.addr, _ = strconv.ParseUint(strings.Trim(columns[0], " :"), 16, 64)
		d.text, _ = hex.DecodeString(strings.ReplaceAll(columns[1], " ", ""))
		all = append(all, d)
	}
	if len(all) < 1000 {
		t.Fatalf("got only %d instructions", len(all))
	}
	return all
}

// target is the branch target: the last address in the operands.
func (d disassembled) target() uint64 {
	s, _, _ := strings.Cut(d.operands, " <")
	s = s[strings.LastIndexAny(s, ", ")+1:]
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	if err != nil {
		return 0
	}
	return n
}

func compare(t *testing.T, all []disassembled, decode func([]byte, uint64) instruction, want func(disassembled) instruction) {
	t.Helper()
	kinds := map[kind]int{}
	for _, d := range all {
		if d.mnemonic == "(bad)" || strings.HasPrefix(d.mnemonic, ".") {
			continue
		}
		w, got := want(d), decode(d.text, d.addr)
		if got != w {
			t.Errorf("%x: %x %s %s: got %+v, want %+v", d.addr, d.text, d.mnemonic, d.operands, got, w)
		}
		kinds[got.kind]++
	}
	if kinds[jump] < 100 || kinds[conditional] < 100 {
		t.Errorf("got only %v jumps and branches, want 100 of each", kinds)
	}
}

// TestObjdumpX86 compares with objdump's disassembly of a static program, which contains
// compiled code and libc's assembly.
func TestObjdumpX86(t *testing.T) {
	t.Parallel()
	objdump := testenv.Tool(t, "objdump")
	bin := compileFor(t, "gcc", "-static", "-no-pie")
	if out, _ := exec.Command(objdump, "-f", bin).Output(); !strings.Contains(string(out), "x86-64") {
		testenv.Unsupported(t, "the compiler makes code for another machine")
	}
	compare(t, disassemble(t, objdump, bin), decodeX86, func(d disassembled) instruction {
		switch m := d.mnemonic; {
		case m == "jmp", m == "call":
			if strings.HasPrefix(d.operands, "*") {
				return instruction{kind: jump}
			}
			return instruction{kind: jump, target: d.target()}
		case m == "ret":
			return instruction{kind: jump}
		case m[0] == 'j', strings.HasPrefix(m, "loop"):
			return instruction{kind: conditional, next: d.addr + uint64(len(d.text)), target: d.target()}
		case m == "syscall", strings.HasPrefix(m, "int"), m == "pushf", m == "popf", m == "xbegin", strings.HasPrefix(m, "iret"):
			return instruction{kind: sensitive}
		case m == "rep", strings.HasPrefix(m, "cmps") && !strings.Contains(d.operands, "xmm"), strings.HasPrefix(m, "scas"):
			return instruction{kind: repeating}
		}
		return instruction{}
	})
}

// TestObjdumpA64 compares with objdump's disassembly of a static arm64 program.
func TestObjdumpA64(t *testing.T) {
	t.Parallel()
	bin := compileFor(t, "aarch64-linux-gnu-gcc", "-static")
	all := disassemble(t, testenv.Tool(t, "aarch64-linux-gnu-objdump"), bin)
	for i := range all {
		slices.Reverse(all[i].text) // objdump prints the instruction as a number
	}
	compare(t, all, decodeA64, func(d disassembled) instruction {
		switch m := d.mnemonic; {
		case m == "b", m == "bl":
			return instruction{kind: jump, target: d.target()}
		case m == "br", m == "blr", strings.HasPrefix(m, "ret"):
			return instruction{kind: jump}
		case strings.HasPrefix(m, "b."), strings.HasPrefix(m, "cb"), strings.HasPrefix(m, "tb") && m != "tbl" && m != "tbx":
			return instruction{kind: conditional, next: d.addr + 4, target: d.target()}
		case m == "svc", m == "brk", m == "hlt", strings.HasPrefix(m, "ldx"), strings.HasPrefix(m, "stx"),
			strings.HasPrefix(m, "ldax"), strings.HasPrefix(m, "stlx"), strings.HasPrefix(m, "casp"):
			return instruction{kind: sensitive}
		}
		return instruction{}
	})
}

// compileFor compiles the busy program with the given compiler.
func compileFor(t *testing.T, compiler string, flags ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "busy")
	args := append([]string{"-O2", "-pthread", "-o", bin, "testdata/busy.c"}, flags...)
	if out, err := exec.Command(testenv.Tool(t, compiler), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	return bin
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0x66, 0x0f, 0x84, 1, 2, 3, 4}, uint64(0x401000))
	f.Fuzz(func(t *testing.T, text []byte, addr uint64) {
		decodeA64(text, addr)
		if i := decodeX86(text, addr); i.kind == conditional && i.next-addr > maxX86 && len(text) <= maxX86 {
			t.Errorf("got a length of %[2]d for %[1]x", text, i.next-addr)
		}
	})
}
