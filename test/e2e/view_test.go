package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	pb "github.com/google/pprof/profile"

	"fulgur/internal/linux/memlock"
	"fulgur/internal/symbols/disasm"
	"fulgur/internal/symbols/elffile"
	"fulgur/internal/testenv"
)

// listed is what the flame graph page shows of a function.
type listed struct {
	Self     int64
	Assembly []struct {
		Function, Arch, Problem string
		Instructions            []struct {
			Address, Text string
			Self          int64
		}
	}
}

// list starts fulgur view on a profile and returns the listing of a function.
func list(t *testing.T, path, function, module string) (l listed) {
	t.Helper()
	cmd := testenv.Command(t, program(t), "view", "--no-open", path)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_, _ = io.Copy(io.Discard, stderr)
		_ = cmd.Wait() // the test checks what it answers
	}()
	page := ""
	for lines := bufio.NewScanner(stderr); page == "" && lines.Scan(); {
		if m := regexp.MustCompile(`^Flame graph.* (http://\S+)/$`).FindStringSubmatch(lines.Text()); m != nil {
			page = m[1]
		}
	}
	r, err := http.Get(page + "/code?" + url.Values{"function": {function}, "module": {module}, "value": {"0"}}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Fatalf("got %s, want %d", r.Status, http.StatusOK)
	}
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil {
		t.Fatal(err)
	}
	if len(l.Assembly) != 1 {
		t.Fatalf("got the code of %d functions, want 1: %+v", len(l.Assembly), l)
	}
	return l
}

// kernelBytes reads the kernel's memory with a BPF program.
func kernelBytes(t *testing.T, address uint64, size int) []byte {
	t.Helper()
	memlock.Lift()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size+7) &^ 7, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "GPL",
		Instructions: asm.Instructions{
			asm.LoadMapValue(asm.R1, m.FD(), 0),
			asm.Mov.Imm(asm.R2, int32(size)),
			asm.LoadImm(asm.R3, int64(address), asm.DWord),
			asm.FnProbeReadKernel.Call(),
			asm.Mov.Imm(asm.R0, 0),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Run(&ebpf.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	value, err := m.LookupBytes(uint32(0))
	if err != nil {
		t.Fatal(err)
	}
	return value[:size]
}

// The page shows the instructions of a kernel function, as BPF reads them from the kernel's
// memory, and only if the profile's addresses are those of the running kernel.
func TestViewKernel(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	out := filepath.Join(t.TempDir(), "out.pb.gz")
	if r := fulgur(t, "profile", "-F", "499", "-o", out, "--", asWorkload(t, "memory")); r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	const module = "[kernel.kallsyms]"
	p := readPprof(t, out)
	samples := map[string]int64{} // by innermost function
	hottest := ""
	for _, s := range p.Sample {
		if leaf := s.Location[0]; leaf.Mapping != nil && leaf.Mapping.File == module && len(leaf.Line) == 1 {
			name := leaf.Line[0].Function.Name
			if samples[name] += s.Value[0]; samples[name] > samples[hottest] {
				hottest = name
			}
		}
	}
	if hottest == "" {
		t.Fatal("no samples in the kernel")
	}
	got := list(t, out, hottest, module)
	code := got.Assembly[0]
	if _, err := os.Stat("/proc/kcore"); err != nil {
		if !strings.Contains(code.Problem, "CONFIG_PROC_KCORE") {
			t.Errorf("got %+v, want an error that names what the kernel lacks", code)
		}
		testenv.Unsupported(t, "the kernel has no /proc/kcore")
	}
	if code.Problem != "" || code.Function != hottest || len(code.Instructions) == 0 {
		t.Fatalf("got %+v, want the instructions of %s", code, hottest)
	}
	first, self := parsed(t, code.Instructions[0].Address), int64(0)
	last := parsed(t, code.Instructions[len(code.Instructions)-1].Address)
	own, err := elffile.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	decoded, err := disasm.Decode(own.Machine(), kernelBytes(t, first, int(last-first)), first)
	if err != nil {
		t.Fatal(err)
	}
	want := decoded.Instructions(nil)
	for i, in := range code.Instructions {
		self += in.Self
		if text, _, _ := strings.Cut(in.Text, " <"); i < len(want) && (parsed(t, in.Address) != want[i].Address || text != want[i].Text) {
			t.Errorf("got %s %s, want %#x %s", in.Address, in.Text, want[i].Address, want[i].Text)
		}
	}
	if self != samples[hottest] || self != got.Self {
		t.Errorf("%s: the instructions have %d samples, the function %d, the profile %d", hottest, self, got.Self, samples[hottest])
	}

	// As after another boot.
	for _, l := range p.Location {
		if l.Mapping != nil && l.Mapping.File == module {
			l.Address += 16 << 20
		}
	}
	moved := filepath.Join(t.TempDir(), "moved.pb.gz")
	writePprof(t, moved, p)
	if code := list(t, moved, hottest, module).Assembly[0]; len(code.Instructions) != 0 || !strings.Contains(code.Problem, "the running kernel is not the recorded one") {
		t.Errorf("with other addresses: got %+v, want an error", code)
	}
}

func parsed(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func writePprof(t *testing.T, path string, p *pb.Profile) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Write(f); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", path, err))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
