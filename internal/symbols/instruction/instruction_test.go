package instruction_test

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/symbols/instruction"
	"fulgur/internal/testenv"
)

// DecodeX86 finds the same sizes as objdump in real programs, and the same kind and target of
// jumps and calls.
func TestAgainstObjdump(t *testing.T) {
	objdump := testenv.Tool(t, "objdump")
	files := []string{"/lib/x86_64-linux-gnu/libm.so.6"} // with AVX, AVX2, AVX-512
	if more := os.Getenv("FULGUR_TEST_FILES"); more != "" {
		files = strings.Fields(more)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			if f, err := elf.Open(name); err != nil || f.Machine != elf.EM_X86_64 {
				testenv.Unsupported(t, "%s is not a file for x86-64", name)
			}
			compare(t, objdump, name)
		})
	}
}

// compare disassembles a file with objdump and compares each instruction.
func compare(t *testing.T, objdump, name string) {
	cmd := exec.Command(objdump, "-d", "-w", "-z", "--insn-width=16", name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	n, unknown, wrong := 0, 0, 0
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) < 3 || !strings.HasSuffix(fields[0], ":") {
			continue
		}
		address, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(fields[0], ":")), 16, 64)
		if err != nil {
			continue
		}
		var code []byte
		for b := range strings.FieldsSeq(fields[1]) {
			v, err := strconv.ParseUint(b, 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			code = append(code, byte(v))
		}
		text := fields[2]
		if code[0] == 0x9b && len(code) > 1 {
			code, address = code[1:], address+1 // objdump shows fwait and the next one as one
		}
		n++
		got, ok := instruction.DecodeX86(append(code, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90), address)
		if strings.Contains(text, "(bad)") {
			continue
		}
		if !ok {
			if unknown++; unknown < 10 {
				t.Logf("unknown: %s", lines.Text())
			}
			continue
		}
		if want := flow(text); got.Size != len(code) || want != "" && want != fmt.Sprintf("%d %x", got.Kind, got.Target) || want == "" && got.Kind != instruction.Plain && got.Kind != instruction.Stop {
			if wrong++; wrong < 20 {
				t.Errorf("%s: got %+v, want size %d and %q", lines.Text(), got, len(code), want)
			}
		}
		if problem := takenApart(instruction.TakeApart(code), code, text); problem != "" {
			if wrong++; wrong < 20 {
				t.Errorf("%s: got %s", lines.Text(), problem)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d instructions, %d unknown, %d wrong", n, unknown, wrong)
	if n < 1000 || unknown*1000 > n {
		t.Errorf("got %d instructions with %d unknown ones, want few unknown ones", n, unknown)
	}
}

// memory finds an operand in memory in a line of objdump, and immediate the constant.
var (
	memory    = regexp.MustCompile(`(-?0x[0-9a-f]+)?\((%\w+)?(?:,(%\w+),([1248]))?\)`)
	immediate = regexp.MustCompile(`^\w+\s+\$(0x[0-9a-f]+),`)
)

// registers holds the numbers of the registers in addresses. objdump shows no register as riz.
var registers = map[string]uint8{
	"": instruction.NoRegister, "%rip": instruction.NoRegister, "%riz": instruction.NoRegister,
	"%rax": 0, "%rcx": 1, "%rdx": 2, "%rbx": 3, "%rsp": 4, "%rbp": 5, "%rsi": 6, "%rdi": 7,
	"%r8": 8, "%r9": 9, "%r10": 10, "%r11": 11, "%r12": 12, "%r13": 13, "%r14": 14, "%r15": 15,
}

// takenApart compares an instruction that was taken apart with a line of objdump. It returns what is wrong, or
// "". It leaves out what objdump does not show as other instructions: string instructions, vectors of
// addresses, and EVEX, which scales displacements.
func takenApart(e instruction.Encoding, code []byte, text string) string {
	text, _, _ = strings.Cut(text, "#")
	found := memory.FindAllStringSubmatch(text, -1)
	isString := e.Map == 0 && (e.Opcode >= 0xa4 && e.Opcode <= 0xaf || e.Opcode >= 0x6c && e.Opcode <= 0x6f || e.Opcode == 0xd7)
	isEVEX := strings.Contains(text, "{") || code[0] == 0x62
	if isString || isEVEX || len(found) > 1 || e.Map == 1 && e.Opcode == 0xf7 {
		return ""
	}
	if len(found) == 1 {
		m := found[0]
		base, ok := registers[m[2]]
		index, ok2 := registers[m[3]]
		if !ok || !ok2 { // vectors, or 32 bits
			return ""
		}
		off, _ := strconv.ParseInt(m[1], 0, 64)
		o := e.Operand
		if !o.Memory || o.Base != base || o.Index != index || o.Displacement != off {
			return fmt.Sprintf("operand %+v", o)
		}
	}
	if m := immediate.FindStringSubmatch(text); m != nil && e.Map == 0 {
		want, err := strconv.ParseUint(m[1], 0, 64)
		// objdump shows as many bits as the operand has.
		got := uint64(e.Immediate)
		if err != nil || got != want && uint64(uint32(got)) != want && uint64(uint16(got)) != want && uint64(uint8(got)) != want {
			return fmt.Sprintf("immediate %#x", got)
		}
	}
	return ""
}

// flow returns the kind and target of a line of objdump, "" for other instructions.
func flow(text string) string {
	words := strings.Fields(text)
	for len(words) > 1 && isPrefixName(words[0]) {
		words = words[1:]
	}
	name, _, _ := strings.Cut(words[0], ",")
	target := uint64(0)
	indirect := len(words) > 1 && strings.HasPrefix(words[1], "*")
	if len(words) > 1 && !indirect {
		target, _ = strconv.ParseUint(words[1], 16, 64)
	}
	var kind instruction.Kind
	switch {
	case strings.HasPrefix(name, "jmp"):
		if kind = instruction.Jump; indirect {
			kind = instruction.IndirectJump
		}
	case strings.HasPrefix(name, "call"):
		if kind = instruction.Call; indirect {
			kind = instruction.IndirectCall
		}
	case name == "ret" || name == "retq":
		kind, target = instruction.Return, 0
	case strings.HasPrefix(name, "loop"), name == "jrcxz", name == "jecxz":
		kind = instruction.CounterJump
	case name[0] == 'j':
		kind = instruction.ConditionalJump
	default:
		return ""
	}
	return fmt.Sprintf("%d %x", kind, target)
}

// isPrefixName reports whether objdump prints a prefix as this word.
func isPrefixName(word string) bool {
	switch word {
	case "notrack", "bnd", "rep", "repz", "repnz", "data16", "cs", "ds", "es", "ss", "fs", "gs", "addr32", "lock":
		return true
	}
	return strings.HasPrefix(word, "rex")
}

func TestOperands(t *testing.T) {
	for code, want := range map[string]instruction.Operand{
		"\xff\xe0":                         {Base: 0, Index: instruction.NoRegister, Scale: 1},
		"\x41\xff\xe3":                     {Base: 11, Index: instruction.NoRegister, Scale: 1},
		"\xff\x24\xc5\x00\x10\x40\x00":     {Memory: true, Base: instruction.NoRegister, Index: 0, Scale: 8, Displacement: 0x401000},
		"\x42\xff\x64\xe3\x08":             {Memory: true, Base: 3, Index: 12, Scale: 8, Displacement: 8},
		"\xff\x25\xf8\xff\xff\xff":         {Memory: true, Base: instruction.NoRegister, Index: instruction.NoRegister, Scale: 1, Displacement: -8, Relative: true},
		"\x41\xff\xa4\x24\x00\x01\x00\x00": {Memory: true, Base: 12, Index: instruction.NoRegister, Scale: 1, Displacement: 0x100},
	} {
		got, ok := instruction.DecodeX86([]byte(code), 0x1000)
		if !ok || got.Kind != instruction.IndirectJump || got.Operand != want || got.Size != len(code) {
			t.Errorf("% x: got %+v, %t, want an indirect jump by %+v", code, got, ok, want)
		}
	}
}

// Calls have the same operands as jumps, also relative to a segment.
func TestCallOperands(t *testing.T) {
	for code, want := range map[string]instruction.Operand{
		"\xff\xd3":                         {Base: 3, Index: instruction.NoRegister, Scale: 1},
		"\x41\xff\x54\xc5\x10":             {Memory: true, Base: 13, Index: 0, Scale: 8, Displacement: 0x10},
		"\x64\xff\x14\x25\x08\x00\x00\x00": {Memory: true, Base: instruction.NoRegister, Index: instruction.NoRegister, Scale: 1, Displacement: 8, Segment: true},
	} {
		got, ok := instruction.DecodeX86([]byte(code), 0x1000)
		if !ok || got.Kind != instruction.IndirectCall || got.Operand != want || got.Size != len(code) {
			t.Errorf("% x: got %+v, %t, want an indirect call by %+v", code, got, ok, want)
		}
	}
}

// The decoders do not read beyond the code, and never return an instruction of size 0.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x66\x0f\x3a\x0f\xc1\x08"))
	f.Add([]byte("\x62\xf1\x7c\x48\x10\x44\x24\x01"))
	f.Fuzz(func(t *testing.T, code []byte) {
		i, ok := instruction.DecodeX86(code, 0)
		if !ok {
			return
		}
		if i.Size < 1 || i.Size > len(code) || i.Size > 15 {
			t.Fatalf("% x: got %+v", code, i)
		}
		// The bytes after an instruction do not matter.
		if again, ok := instruction.DecodeX86(code[:i.Size], 0); !ok || again != i {
			t.Fatalf("% x: got %+v, and of its bytes alone %+v, %t", code, i, again, ok)
		}
	})
}

// The encodings are from llvm-mc.
func TestARM64(t *testing.T) {
	register := func(base uint8, signed bool) instruction.Operand {
		return instruction.Operand{Base: base, Index: instruction.NoRegister, Scale: 1, Signed: signed}
	}
	for name, test := range map[string]struct {
		word uint32
		want instruction.Instruction
	}{
		"b .+8":                       {0x14000002, instruction.Instruction{Kind: instruction.Jump, Target: 0x1008}},
		"bl .-4":                      {0x97ffffff, instruction.Instruction{Kind: instruction.Call, Target: 0xffc}},
		"b.eq .+16":                   {0x54000080, instruction.Instruction{Kind: instruction.ConditionalJump, Target: 0x1010}},
		"b.al .+16":                   {0x5400008e, instruction.Instruction{Kind: instruction.Jump, Target: 0x1010}},
		"b.le .-16":                   {0x54ffff8d, instruction.Instruction{Kind: instruction.ConditionalJump, Condition: 13, Target: 0xff0}},
		"cbz w3, .+20":                {0x340000a3, instruction.Instruction{Kind: instruction.ConditionalJump, Target: 0x1014, Test: instruction.Test{Mask: 0xffffffff, Register: 3}}},
		"cbnz x30, .-1024":            {0xb5ffe01e, instruction.Instruction{Kind: instruction.ConditionalJump, Target: 0xc00, Test: instruction.Test{Mask: 1<<64 - 1, Register: 30, Nonzero: true}}},
		"tbz w1, #5, .+8":             {0x36280041, instruction.Instruction{Kind: instruction.ConditionalJump, Target: 0x1008, Test: instruction.Test{Mask: 1 << 5, Register: 1}}},
		"tbnz x2, #63, .-8":           {0xb7ffffc2, instruction.Instruction{Kind: instruction.ConditionalJump, Target: 0xff8, Test: instruction.Test{Mask: 1 << 63, Register: 2, Nonzero: true}}},
		"br x17":                      {0xd61f0220, instruction.Instruction{Kind: instruction.IndirectJump, Operand: register(17, false)}},
		"blr x8":                      {0xd63f0100, instruction.Instruction{Kind: instruction.IndirectCall, Operand: register(8, false)}},
		"ret":                         {0xd65f03c0, instruction.Instruction{Kind: instruction.Return}},
		"retaa":                       {0xd65f0bff, instruction.Instruction{Kind: instruction.Return}},
		"braaz x1":                    {0xd61f083f, instruction.Instruction{Kind: instruction.IndirectJump, Operand: register(1, true)}},
		"braa x1, x2":                 {0xd71f0822, instruction.Instruction{Kind: instruction.IndirectJump, Operand: register(1, true)}},
		"blraa x3, sp":                {0xd73f087f, instruction.Instruction{Kind: instruction.IndirectCall, Operand: register(3, true)}},
		"ldxr w0, [x1]":               {0x885f7c20, instruction.Instruction{Exclusive: instruction.LoadExclusive}},
		"ldaxrh w0, [x1]":             {0x485ffc20, instruction.Instruction{Exclusive: instruction.LoadExclusive}},
		"ldaxp x0, x1, [x2]":          {0xc87f8440, instruction.Instruction{Exclusive: instruction.LoadExclusive}},
		"stlxr w3, x0, [x1]":          {0xc803fc20, instruction.Instruction{Exclusive: instruction.EndExclusive}},
		"stxp w3, w0, w1, [x2]":       {0x88230440, instruction.Instruction{Exclusive: instruction.EndExclusive}},
		"clrex #3":                    {0xd503335f, instruction.Instruction{Exclusive: instruction.EndExclusive}},
		"caspal x0, x1, x2, x3, [x4]": {0x4860fc82, instruction.Instruction{Exclusive: instruction.NotExclusive}},
		"casal x0, x1, [x2]":          {0xc8e0fc41, instruction.Instruction{Exclusive: instruction.NotExclusive}},
		"ldar x0, [x1]":               {0xc8dffc20, instruction.Instruction{Exclusive: instruction.NotExclusive}},
		"stlr x0, [x1]":               {0xc89ffc20, instruction.Instruction{Exclusive: instruction.NotExclusive}},
		"svc #0":                      {0xd4000001, instruction.Instruction{}},
		"eret":                        {0xd69f03e0, instruction.Instruction{Kind: instruction.Return}},
		"brk #1":                      {0xd4200020, instruction.Instruction{Kind: instruction.Stop}},
		"udf #7":                      {0x00000007, instruction.Instruction{Kind: instruction.Stop}},
		"mrs x0, tpidr_el0":           {0xd53bd040, instruction.Instruction{}},
		"ldr x0, [x1]":                {0xf9400020, instruction.Instruction{}},
		"add w1, w2, w3":              {0x0b030041, instruction.Instruction{}},
		"ldr x0, .+8":                 {0x58000040, instruction.Instruction{Reference: 0x1008}},
		"fmov d0, #1.0":               {0x1e6e1000, instruction.Instruction{}},
		"ptrue p0.b, vl1 (SVE)":       {0x2518e020, instruction.Instruction{}},
	} {
		test.want.Size = 4
		code := binary.LittleEndian.AppendUint32(nil, test.word)
		if got, ok := instruction.DecodeARM64(code, 0x1000); !ok || got != test.want {
			t.Errorf("%s: got %+v, %t, want %+v", name, got, ok, test.want)
		}
		if got, ok := instruction.DecodeARM64(code[:3], 0x1000); ok {
			t.Errorf("%s, cut short: got %+v", name, got)
		}
	}
	// Compare and branch (FEAT_CMPBR) is not known.
	if got, ok := instruction.DecodeARM64(binary.LittleEndian.AppendUint32(nil, 0x74000000), 0); ok {
		t.Errorf("cb.gt: got %+v, want no instruction", got)
	}
}

// Branches in Go's own code for arm64 are the same as llvm-objdump's.
func TestARM64AgainstObjdump(t *testing.T) {
	objdump := testenv.Tool(t, "llvm-objdump-19")
	program := filepath.Join(t.TempDir(), "program")
	build := exec.Command(testenv.Tool(t, "go"), "build", "-o", program, "cmd/pack")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	text, err := exec.Command(objdump, "-d", "--no-show-raw-insn", "--no-leading-headers", "--print-imm-hex", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	section := f.Section(".text")
	code, err := section.Data()
	if err != nil {
		t.Fatal(err)
	}
	n, branches := 0, 0
	for line := range strings.Lines(string(text)) {
		address, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		at, err := strconv.ParseUint(address, 16, 64)
		words := strings.Fields(rest)
		if !ok || err != nil || len(words) == 0 || at-section.Addr >= uint64(len(code)) {
			continue
		}
		n++
		got, ok := instruction.DecodeARM64(code[at-section.Addr:], at)
		want := flowARM64(words)
		if want.Kind != instruction.Plain {
			branches++
		}
		if !ok || got.Kind != want.Kind || got.Target != want.Target || got.Test.Nonzero != want.Test.Nonzero || want.Operand.Base != 0 && got.Operand.Base != want.Operand.Base {
			t.Fatalf("%s: got %+v, %t", strings.TrimSpace(line), got, ok)
		}
	}
	if n < 100_000 || branches < 10_000 {
		t.Errorf("got %d instructions with %d branches, want more", n, branches)
	}
}

// flowARM64 returns what llvm-objdump says about an instruction.
func flowARM64(words []string) (i instruction.Instruction) {
	last := strings.TrimPrefix(words[len(words)-1], "<")
	for k, word := range words { // "b.eq 0x11d84 <name+0x4>"
		if strings.HasPrefix(word, "<") && k > 0 {
			last = words[k-1]
		}
	}
	switch name := words[0]; {
	case name == "b":
		i.Kind = instruction.Jump
	case name == "bl":
		i.Kind = instruction.Call
	case strings.HasPrefix(name, "b."), name == "cbz", name == "tbz":
		i.Kind = instruction.ConditionalJump
	case name == "cbnz", name == "tbnz":
		i.Kind, i.Test.Nonzero = instruction.ConditionalJump, true
	case name == "br":
		i.Kind = instruction.IndirectJump
	case name == "blr":
		i.Kind = instruction.IndirectCall
	case name == "ret":
		i.Kind = instruction.Return
	case name == "udf", name == "brk", name == "hlt":
		i.Kind = instruction.Stop
	}
	switch i.Kind {
	case instruction.Jump, instruction.Call, instruction.ConditionalJump:
		i.Target, _ = strconv.ParseUint(strings.TrimPrefix(last, "0x"), 16, 64)
	case instruction.IndirectJump, instruction.IndirectCall:
		n, _ := strconv.Atoi(strings.TrimPrefix(words[1], "x"))
		i.Operand.Base = uint8(n)
	}
	return i
}
