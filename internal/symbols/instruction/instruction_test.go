package instruction_test

import (
	"bufio"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/symbols/instruction"
	"fulgur/internal/testenv"
)

// Decode finds the same sizes as objdump in real programs, and the same kind and target of
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
		got, ok := instruction.Decode(append(code, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90), address)
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
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d instructions, %d unknown, %d wrong", n, unknown, wrong)
	if n < 1000 || unknown*1000 > n {
		t.Errorf("got %d instructions with %d unknown ones, want few unknown ones", n, unknown)
	}
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
		got, ok := instruction.Decode([]byte(code), 0x1000)
		if !ok || got.Kind != instruction.IndirectJump || got.Operand != want || got.Size != len(code) {
			t.Errorf("% x: got %+v, %t, want an indirect jump by %+v", code, got, ok, want)
		}
	}
}

// Decode does not read beyond the code, and never returns an instruction of size 0.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x66\x0f\x3a\x0f\xc1\x08"))
	f.Add([]byte("\x62\xf1\x7c\x48\x10\x44\x24\x01"))
	f.Fuzz(func(t *testing.T, code []byte) {
		i, ok := instruction.Decode(code, 0)
		if !ok {
			return
		}
		if i.Size < 1 || i.Size > len(code) || i.Size > 15 {
			t.Fatalf("% x: got %+v", code, i)
		}
		// The bytes after an instruction do not matter.
		if again, ok := instruction.Decode(code[:i.Size], 0); !ok || again != i {
			t.Fatalf("% x: got %+v, and of its bytes alone %+v, %t", code, i, again, ok)
		}
	})
}
