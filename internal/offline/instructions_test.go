package offline

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/pprof"
	"fulgur/internal/profile/report"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// loop is a program with a function of several instructions, whose result depends on SALT.
const loop = `__attribute__((noinline)) unsigned work(unsigned n) {
	unsigned sum = SALT;
	for (unsigned i = 1; i < n; i++)
		sum += n / i ^ i * 2654435761u;
	return sum;
}
int main(int argc, char **argv) { return work(argc); }
`

// compileLoop compiles the program to a file. It returns its build ID.
func compileLoop(t *testing.T, path, salt string) string {
	t.Helper()
	source := filepath.Join(filepath.Dir(path), "loop.c")
	if err := os.WriteFile(source, []byte(loop), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), testenv.Tool(t, "gcc"), "-g", "-O1", "-no-pie", "-Wl,--build-id", "-DSALT="+salt, "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	f, err := elffile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.BuildID()
}

// disassembled are the instructions that objdump prints of the function work: addresses and their mnemonics.
func disassembled(t *testing.T, path string) (addresses []uint64, mnemonics map[string]string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), testenv.Tool(t, "objdump"), "-d", "-M", "intel", "--no-show-raw-insn", "--disassemble=work", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	mnemonics = map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ +([0-9a-f]+):\t(\w+)`).FindAllStringSubmatch(string(out), -1) {
		at, err := strconv.ParseUint(m[1], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, at)
		mnemonics["0x"+m[1]] = m[2]
	}
	return addresses, mnemonics
}

// The question instructions has the text that objdump prints, beside the counts of each instruction, if the file is of
// the recorded build. Otherwise it has the addresses, and says why.
func TestInstructions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "loop")
	id := compileLoop(t, path, "1")
	addresses, mnemonics := disassembled(t, path)
	if len(addresses) < 8 {
		t.Fatalf("got %d instructions from objdump", len(addresses))
	}
	counts := map[string]int64{}
	recorded := func(id string) string {
		b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
		mapping := b.Mapping(profile.Mapping{Path: path, BuildID: id})
		work := b.Function(profile.Function{Name: "work", SystemName: "work"})
		for i, at := range addresses {
			counts["0x"+strconv.FormatUint(at, 16)] = int64(i + 1)
			frame := b.Frame(profile.Frame{Function: work, Mapping: mapping, Address: at})
			b.Add(profile.Sample{Stack: b.Push(0, frame), Task: b.Task(profile.Task{PID: 1, Comm: "loop"}), CPU: -1, Values: []int64{int64(i + 1)}})
		}
		var file bytes.Buffer
		if err := pprof.Write(&file, b.Profile(profile.Meta{}, profile.Losses{}), pprof.Options{}); err != nil {
			t.Fatal(err)
		}
		return write(t, "loop.pb.gz", file.String())
	}
	ask := func(file string) (a report.Answer) {
		t.Helper()
		var out strings.Builder
		if code, err := Report(t.Context(), ReportOptions{Input: file, Question: "instructions", Function: "work", Functions: 1000, Format: "json", Stdout: &out, Stderr: io.Discard}); err != nil || code != 0 {
			t.Fatalf("exit code %d, %v", code, err)
		}
		if err := json.Unmarshal([]byte(out.String()), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	check := func(a report.Answer, texts map[string]string) {
		t.Helper()
		gotCounts, gotTexts := map[string]int64{}, map[string]string{}
		for _, r := range a.Rows {
			gotCounts[r.Address] = r.Self
			if r.Text != "" {
				mnemonic, _, _ := strings.Cut(r.Text, " ")
				gotTexts[r.Address] = strings.NewReplacer("jnz", "jne", "jz", "je").Replace(mnemonic) // the same
				if !strings.HasSuffix(r.File, "loop.c") || r.Line < 1 || r.Line > 6 {
					t.Errorf("%s is at %s:%d", r.Address, r.File, r.Line)
				}
			}
		}
		if diff := cmp.Diff(counts, gotCounts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(texts, gotTexts); diff != "" {
			t.Errorf("instructions (-objdump +got):\n%s", diff)
		}
	}
	whole := recorded(id)
	a := ask(whole)
	check(a, mnemonics)
	if len(a.Notes) > 0 {
		t.Errorf("got the notes %q", a.Notes)
	}
	unproven := func(file, why string) {
		t.Helper()
		a := ask(file)
		check(a, map[string]string{})
		if len(a.Notes) != 1 || !strings.Contains(a.Notes[0], why) {
			t.Errorf("got the notes %q, want one that says %q", a.Notes, why)
		}
	}
	unproven(recorded(""), "no build ID was recorded")
	compileLoop(t, path, "2")
	unproven(whole, "is another build")
}
