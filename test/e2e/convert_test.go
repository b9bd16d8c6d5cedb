package e2e

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/testenv"
)

// branchData writes a file of real branch records to dir under a name, and returns
// its path. internal/perfdata/testdata/README.md describes the files.
func branchData(t *testing.T, dir, data, name string) string {
	t.Helper()
	const root = "../.."
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		testenv.Unsupported(t, "needs the source tree: %v", err)
	}
	f, err := os.Open(filepath.Join(root, "internal", "perfdata", "testdata", data+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return writeTo(t, filepath.Join(dir, name), string(b))
}

func writeTo(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// recorded is an input of fulgur convert, with the recorded binary.
type recorded struct{ binary, input string }

func recordings(t *testing.T) map[string]recorded {
	t.Helper()
	dir := t.TempDir()
	return map[string]recorded{
		"perf.data": {
			branchData(t, dir, "propeller_sample_1.bin", "propeller_sample_1.bin.gen"),
			branchData(t, dir, "propeller_sample_1.perfdata1", "perf.data"),
		},
		"text": {
			branchData(t, dir, "cs-preinline-cost.perfbin", "a.out"),
			branchData(t, dir, "cs-preinline-cost.perfscript", "text"),
		},
		"text without mappings": {
			branchData(t, dir, "inline-noprobe2.perfbin", "inline"),
			branchData(t, dir, "inline-noprobe2.perfscript", "samples"),
		},
	}
}

// convert runs fulgur convert, which must succeed, and returns the output's path.
func convert(t *testing.T, of recorded, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.preagg")
	r := fulgur(t, append([]string{"convert", "--binary", of.binary, "-o", out, of.input}, flags...)...)
	if r.code != 0 || r.stdout != "" {
		t.Fatalf("exit code %d, want 0; output %q: %s", r.code, r.stdout, r.stderr)
	}
	return out
}

// fdata returns the sorted lines of the output of perf2bolt, of a version of LLVM, for a
// profile.
func fdata(t *testing.T, version int, binary, profile string) []string {
	t.Helper()
	perf2bolt := fmt.Sprintf("/usr/lib/llvm-%d/bin/perf2bolt", version)
	testenv.File(t, perf2bolt)
	out := filepath.Join(t.TempDir(), "fdata")
	if b, err := exec.Command(perf2bolt, "--pa", "-p", profile, "-o", out, binary).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", perf2bolt, err, b)
	}
	lines := strings.SplitAfter(read(t, out), "\n")
	slices.Sort(lines)
	return lines
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// perf2bolt converts both formats to the same lines.
func TestConvertForBOLT(t *testing.T) {
	for name, r := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			traces, branches := convert(t, r, "--llvm", "22"), convert(t, r, "--llvm", "16")
			want := fdata(t, 22, r.binary, traces)
			if len(want) < 5 {
				t.Fatalf("perf2bolt makes %d lines of:\n%s", len(want), read(t, traces))
			}
			for _, version := range []int{22, 19, 16} {
				got := fdata(t, version, r.binary, branches)
				if version == 22 && !slices.Equal(got, want) {
					t.Errorf("the format for LLVM 16 (-22 +16):\n%s", cmp.Diff(want, got))
				}
				if len(got) < 5 {
					t.Errorf("got %[2]d lines from perf2bolt of LLVM %[1]d, want at least 5", version, len(got))
				}
			}
		})
	}
}

// Pipes work like files, as input and as output.
func TestConvertPipe(t *testing.T) {
	for name, r := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			want := read(t, convert(t, r))
			cmd := command(t, "convert", "--format", "preagg", "--binary", r.binary, "-q", "-o", "-", "-")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(in, read(t, r.input)); err != nil {
				t.Fatal(err)
			}
			in.Close()
			got := finish(t, cmd)
			if d := cmp.Diff(result{stdout: want}, got, cmp.AllowUnexported(result{})); d != "" {
				t.Errorf("result differs (-file +pipe):\n%s", d)
			}
		})
	}
}

// With --all-binaries, each mapped file has the same profile as alone.
func TestConvertAllBinaries(t *testing.T) {
	r := recordings(t)["text"]
	recordedPath := "/data/users/wenlei/repro/a.out"
	r.input = writeTo(t, filepath.Join(t.TempDir(), "text"), strings.ReplaceAll(read(t, r.input), recordedPath, r.binary))
	dir := filepath.Join(t.TempDir(), "new", "profiles")
	got := fulgur(t, "convert", "--all-binaries", "-o", dir, r.input)
	if got.code != 0 || !strings.Contains(got.stderr, "some files have no profile; ") {
		t.Fatalf("exit code %d, want 0: %s", got.code, got.stderr)
	}
	if d := cmp.Diff(read(t, convert(t, r)), read(t, filepath.Join(dir, "a.out.preagg"))); d != "" {
		t.Errorf("profiles differ (-alone +all binaries):\n%s", d)
	}
}

// The profile is for the llvm-bolt in PATH unless --llvm is given.
func TestConvertChoosesLLVM(t *testing.T) {
	r := recordings(t)["text without mappings"]
	for _, tc := range []struct{ says, format, stderr string }{
		{"LLVM version 23.0.0git", "22", ""},
		{"Debian LLVM version 19.1.7", "16", "the installed llvm-bolt is 19.1.7"},
		{"hello", "", "which is not an LLVM version; choose the version with --llvm"},
	} {
		t.Run(tc.says, func(t *testing.T) {
			dir := t.TempDir()
			writeTo(t, filepath.Join(dir, "llvm-bolt"), "#!/bin/sh\necho '"+tc.says+"'\n")
			cmd := command(t, "convert", "--binary", r.binary, "--format", "preagg", r.input)
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			got := finish(t, cmd)
			if !strings.Contains(got.stderr, tc.stderr) {
				t.Errorf("got no %q, want it in: %s", tc.stderr, got.stderr)
			}
			if tc.format == "" {
				if got.code != 1 || got.stdout != "" {
					t.Errorf("exit code %d, want 1; output %q", got.code, got.stdout)
				}
			} else if got.stdout != read(t, convert(t, r, "--llvm", tc.format)) {
				t.Errorf("profile differs from the one for LLVM %s", tc.format)
			}
		})
	}
}

// The profiles of two halves of a text add up to the profile of the whole text.
func TestMergeHalves(t *testing.T) {
	r := recordings(t)["text"]
	head, samples, _ := strings.Cut(read(t, r.input), "\n\n")
	list := strings.SplitAfter(samples, "\n\n")
	dir := t.TempDir()
	half := func(name string, samples []string) recorded {
		return recorded{r.binary, writeTo(t, filepath.Join(dir, name), head+"\n\n"+strings.Join(samples, ""))}
	}
	for _, version := range []string{"22", "16"} {
		t.Run("llvm="+version, func(t *testing.T) {
			whole := read(t, convert(t, r, "--llvm", version))
			first := convert(t, half("first", list[:len(list)/3]), "--llvm", version)
			second := convert(t, half("second", list[len(list)/3:]), "--llvm", version)
			if read(t, first) == whole {
				t.Fatal("one half of the text makes the whole profile, want less")
			}
			out := filepath.Join(t.TempDir(), "all.preagg")
			m := fulgur(t, "merge", "-o", out, second, first)
			if m.code != 0 || m.stdout != "" || !strings.Contains(m.stderr, "2 profiles of 2 without a build ID in the name") {
				t.Errorf("exit code %d, want 0; output %q: %s", m.code, m.stdout, m.stderr)
			}
			if d := cmp.Diff(whole, read(t, out)); d != "" {
				t.Errorf("profiles differ (-whole +merged):\n%s", d)
			}
		})
	}
}

// Output of other programs, unsorted and through a pipe, is merged, too; different
// binaries only with --force.
func TestMerge(t *testing.T) {
	testenv.AnyKernel(t)
	dir := t.TempDir()
	a := writeTo(t, filepath.Join(dir, "app.0123456789.preagg"), "T 30 10 20 1\nB 1 2 3 0\n")
	b := writeTo(t, filepath.Join(dir, "app.abcdef0123.preagg"), "B 1 2 4 5\n")
	bad := writeTo(t, filepath.Join(dir, "bad.preagg"), "B 1 2 4 5\nB 1 2\n")
	basic := writeTo(t, filepath.Join(dir, "basic.preagg"), "E cycles\nS 1 2\n")
	const sum = "B 1 2 7 5\nT 30 10 20 1\n"
	tests := map[string]struct {
		args   []string
		stdout string
		stderr string
		code   int
	}{
		"same":         {[]string{a, a}, "B 1 2 6 0\nT 30 10 20 2\n", "", 0},
		"one":          {[]string{a}, "B 1 2 3 0\nT 30 10 20 1\n", "", 0},
		"others":       {[]string{a, b}, "", "--force", 1},
		"forced":       {[]string{"--force", a, b}, sum, "", 0},
		"bad":          {[]string{a, bad}, "", "bad.preagg:2", 1},
		"both kinds":   {[]string{a, basic}, "", "has branches", 1},
		"no such file": {[]string{a, filepath.Join(dir, "none")}, "", "no such file", 1},
		"directory":    {[]string{a, dir}, "", "is a directory", 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := fulgur(t, append([]string{"merge"}, test.args...)...)
			if r.code != test.code || r.stdout != test.stdout || !strings.Contains(r.stderr, test.stderr) {
				t.Errorf("exit code %d, %q: %s", r.code, r.stdout, r.stderr)
			}
		})
	}
	t.Run("pipe", func(t *testing.T) {
		cmd := command(t, "merge", "-q", a, "-")
		cmd.Stdin = strings.NewReader("B 1 2 4 5\n")
		if r := finish(t, cmd); r != (result{stdout: sum}) {
			t.Errorf("exit code %d, %q: %s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("onto an input", func(t *testing.T) {
		if r := fulgur(t, "merge", "--force", "-o", a, a, b); r != (result{}) {
			t.Errorf("exit code %d, %q: %s", r.code, r.stdout, r.stderr)
		}
		if got := read(t, a); got != sum {
			t.Errorf("merged file = %q, want the sum", got)
		}
	})
}

// Unsuitable inputs are rejected with a remedy, and nothing is written.
func TestConvertErrors(t *testing.T) {
	all := recordings(t)
	r := all["perf.data"]
	dir := t.TempDir()
	whole := read(t, r.input)
	tests := map[string]struct {
		recorded
		want string
	}{
		"another binary":  {recorded{program(t), r.input}, "no process mapped " + program(t)},
		"no binary":       {recorded{dir + "/none", r.input}, "none: no such file"},
		"no ELF file":     {recorded{all["text"].input, r.input}, "not an ELF file"},
		"no input":        {recorded{r.binary, dir + "/none"}, "none: no such file"},
		"empty":           {recorded{r.binary, writeTo(t, dir+"/empty", "")}, "empty: no samples: text input must come from perf script -F"},
		"program":         {recorded{r.binary, r.binary}, "neither a perf.data file nor text"},
		"directory":       {recorded{r.binary, dir}, "is a directory"},
		"cut":             {recorded{r.binary, writeTo(t, dir+"/cut", whole[:len(whole)/2])}, "at offset 0x"},
		"no mappings":     {recorded{r.binary, all["text without mappings"].input}, "add --show-mmap-events"},
		"no branches":     {recorded{all["text"].binary, writeTo(t, dir+"/addresses", "           400600 \n           400700 \n")}, "perf record -b"},
		"broken branches": {recorded{all["text"].binary, writeTo(t, dir+"/broken", "  400600 0x1/0x2/P/-/-/0 0x3/\n")}, "broken:1 (offset 0x0)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.preagg")
			got := fulgur(t, "convert", "--binary", test.binary, "-o", out, test.input)
			if got.code != 1 || !strings.Contains(got.stderr, test.want) {
				t.Errorf("exit code %d, want 1; no %q in: %s", got.code, test.want, got.stderr)
			}
			if left, err := os.ReadDir(filepath.Dir(out)); err != nil || len(left) > 0 {
				t.Errorf("files left behind: %v, %v, want none", left, err)
			}
		})
	}
}

// A binary of another build is rejected.
func TestConvertWrongBuild(t *testing.T) {
	parallel(t)
	testenv.AnyKernel(t)
	perf := testenv.Tool(t, "perf")
	old := compile(t, "shares.c", "shares", "-Wl,--build-id=0x1111111111111111111111111111111111111111")
	built := compile(t, "shares.c", "shares", "-Wl,--build-id=0x2222222222222222222222222222222222222222")
	data := filepath.Join(t.TempDir(), "perf.data")
	record := exec.Command(perf, "record", "-e", "task-clock:u", "-o", data, "timeout", "0.3", old)
	if b, err := record.CombinedOutput(); err != nil && record.ProcessState.ExitCode() != 124 {
		testenv.Skip(t, "needs a perf that records: %v\n%s", err, b)
	}
	run := func(binary string, flags ...string) result {
		return fulgur(t, append([]string{"convert", "--binary", binary, "--format", "preagg", data}, flags...)...)
	}
	if r := run(built); r.code != 1 || !strings.Contains(r.stderr, "wrong binary: shares was recorded with build ID 1111111111") {
		t.Errorf("exit code %d, want 1: %s", r.code, r.stderr)
	}
	if r := run(old); r.code != 1 || !strings.Contains(r.stderr, "no branch stacks in the file: record with perf record -b") {
		t.Errorf("exit code %d, want 1: %s", r.code, r.stderr)
	}
	r := run(old, "--basic")
	if r.code != 0 || !strings.HasPrefix(r.stdout, "E samples\nS ") || !strings.Contains(r.stderr, "not where it jumps") {
		t.Errorf("exit code %d, want 0; output %q: %s", r.code, r.stdout, r.stderr)
	}
	dir := filepath.Join(t.TempDir(), "profiles")
	if r := fulgur(t, "convert", "--all-binaries", "--basic", "-q", "-o", dir, data); r != (result{}) {
		t.Errorf("exit code %d, %q: %s", r.code, r.stdout, r.stderr)
	}
	if got := read(t, filepath.Join(dir, "shares."+strings.Repeat("1", 40)+".preagg")); got != r.stdout {
		t.Errorf("profile from all binaries = %q, want the same as alone", got)
	}
}

// The summary shows the counts and the next commands, which work.
func TestConvertSummary(t *testing.T) {
	r := recordings(t)["perf.data"]
	dir := t.TempDir()
	run := func(flags ...string) result {
		cmd := command(t, append([]string{"convert", "--binary", r.binary, "-o", "p q.preagg", r.input}, flags...)...)
		cmd.Dir = dir
		return finish(t, cmd)
	}
	text := run("--llvm", "22").stderr
	for _, want := range []string{
		"3732 samples, 119424 branch records\n", "  left out: 966 duplicate branch records\n",
		"build ID 572ac72487ae1966", "taken branches for each byte of machine code", "\nnext:\n", "'p q.preagg'",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	var report struct {
		Samples  int
		Binaries []struct {
			Profile string
			Next    [][]string
		}
	}
	got := run("--llvm", "22", "--stats", "json").stderr
	if err := json.Unmarshal([]byte(got), &report); err != nil {
		t.Fatalf("%v in:\n%s", err, got)
	}
	if len(report.Binaries) != 1 || report.Samples != 3732 || report.Binaries[0].Profile != "p q.preagg" {
		t.Fatalf("report = %+v, want one binary, 3732 samples and the profile p q.preagg", report)
	}
	for _, argv := range report.Binaries[0].Next {
		if _, err := exec.LookPath(argv[0]); err != nil {
			testenv.Skip(t, "needs BOLT of LLVM 22")
		}
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = dir
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", argv, err, b)
		}
	}
}

// In a directory, a profile's name contains the build ID, which merge compares.
func TestConvertIntoDirectory(t *testing.T) {
	r := recordings(t)["perf.data"]
	dir := t.TempDir()
	if got := fulgur(t, "convert", "-q", "--binary", r.binary, "-o", dir, r.input); got != (result{}) {
		t.Fatalf("exit code %d, %q: %s", got.code, got.stdout, got.stderr)
	}
	named := filepath.Join(dir, "propeller_sample_1.bin.gen.572ac72487ae1966.preagg")
	if read(t, named) != read(t, convert(t, r)) {
		t.Error("the named profile differs from the one in a file")
	}
	other := writeTo(t, filepath.Join(dir, "propeller_sample_1.bin.gen.0123456789abcdef.preagg"), "B 1 2 3 4\n")
	if got := fulgur(t, "merge", named, other); got.code != 1 || !strings.Contains(got.stderr, "build ID 572ac72487ae1966, ") {
		t.Errorf("exit code %d, want 1: %s", got.code, got.stderr)
	}
}

// Ctrl-C ends a conversion that waits for its input.
func TestConvertInterrupted(t *testing.T) {
	testenv.AnyKernel(t)
	out := filepath.Join(t.TempDir(), "out.preagg")
	cmd := command(t, "convert", "--binary", program(t), "-o", out, "-")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitTemporary(t, cmd)
	if r := interrupt(t, cmd); r.code != 1 || !strings.Contains(r.stderr, "interrupted") {
		t.Errorf("exit code %d, want 1: %s", r.code, r.stderr)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("output exists or failed: %v, want none", err)
	}
}

// awaitTemporary waits until cmd, which was started, has a temporary file for the data
// from the pipe.
func awaitTemporary(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	testenv.Await(t, func() bool {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(files, func(file string) bool {
			to, err := os.Readlink(file) // a descriptor may be closed by now
			return err == nil && strings.HasSuffix(to, " (deleted)") && !strings.HasPrefix(to, "/memfd:")
		})
	}, func() string { return fmt.Sprintf("fulgur does not read its input: %s", cmd.Stderr) })
}
