package bolt

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/bolt"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
	"fulgur/internal/testenv"
	"fulgur/test/rig/pmu"
)

// writeKernel writes a kernel that is not the running one, but has its build ID.
func writeKernel(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(testenv.Compile(t, "vmlinux", "gcc", "../../e2e/testdata/kernel.c", "-O2", "-g", "-ffreestanding", "-mcmodel=kernel",
		"-mno-red-zone", "-fno-pic", "-nostdlib", "-static", "-no-pie", "-Wl,-Ttext-segment=0xffffffff81000000", "-Wl,--build-id"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	finder, err := debugfile.New(debugfile.Config{})
	if err != nil {
		t.Fatal(err)
	}
	id, err := finder.KernelBuildID("")
	if err != nil {
		t.Fatal(err)
	}
	running, err := hex.DecodeString(id)
	if err != nil {
		t.Fatal(err)
	}
	note := f.Section(".note.gnu.build-id")
	end := note.Offset + note.Size
	copy(b[end-uint64(len(running)):end], running)
	path := filepath.Join(dir, "vmlinux")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A profile of the running kernel, of all processes, equals the profile that convert makes of
// perf script's text with the same branches.
func TestKernel(t *testing.T) {
	pmu.Load(t, pmu.Options{NMI: true})
	dir := t.TempDir()
	path := writeKernel(t, dir)
	text, err := symbolize.KernelText(symbolize.Kallsyms)
	if err != nil {
		t.Fatal(err)
	}
	o := newOracle(t, path, false)
	layout, ok := o.binary.KernelLayout(symbolize.TextSymbol, text)
	if !ok {
		t.Fatal("the test's kernel has no symbol " + symbolize.TextSymbol)
	}
	const windows, window = 200, 32
	code, _ := layout.Find(text)
	records := walk(1, windows*window, o.branches(t, code), code.Start, code.End)
	// Text has no other flags.
	records = slices.DeleteFunc(records, func(r pmu.Record) bool { return r.Flags != bolt.FlagPredicted })
	records = records[:len(records)/window*window]
	if err := pmu.Add(pmu.Queue{Window: window, Records: records}); err != nil {
		t.Fatal(err)
	}
	live := filepath.Join(dir, "live")
	fulgur := testenv.Program(t, "fulgur/cmd/fulgur", dir)
	r := run{cmd: testenv.Command(t, fulgur, "autofdo", "--kernel", "--binary", path, "--format", "text", "--stats", "json", "-f", "2000", "-o", live, "600")}
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	// Reading the records' status is kernel code for the samples to interrupt.
	if rep := r.end(t); rep.Samples < uint64(len(records)/window) {
		t.Errorf("got %d samples, want the %d with records", rep.Samples, len(records)/window)
	}

	var script strings.Builder
	fmt.Fprintf(&script, "PERF_RECORD_MMAP -1/0: [%#x(0x20000000) @ %#[1]x]: x [kernel.kallsyms]%s\n", text, symbolize.TextSymbol)
	for stack := range slices.Chunk(records, window) {
		fmt.Fprintf(&script, " %x", stack[0].To)
		for _, e := range stack {
			fmt.Fprintf(&script, " %#x/%#x/P/-/-/0 ", e.From, e.To)
		}
		script.WriteByte('\n')
	}
	in, converted := filepath.Join(dir, "script"), filepath.Join(dir, "converted")
	if err := os.WriteFile(in, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(fulgur, "convert", "--format", "autofdo-text", "--binary", path, "-o", converted, in).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, err := os.ReadFile(converted)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(live)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" || !strings.Contains(string(got), "schedule") {
		t.Errorf("(-converted +live):\n%s", d)
	}
}
