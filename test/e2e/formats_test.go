package e2e

import (
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/profile/encode/firefox/firefoxtest"
	"fulgur/internal/testenv"
)

const stacks = "server;main;parse 30\nserver;main;sort_[k] 12\ntar;main;read 5\n"

// A profile keeps its stacks in every format that fulgur reads.
func TestConvertFormats(t *testing.T) {
	testenv.AnyKernel(t)
	dir := t.TempDir()
	from := writeTo(t, filepath.Join(dir, "in.folded"), stacks)
	for _, ending := range []string{"folded", "pb.gz", "otlp", "json.gz"} {
		to := filepath.Join(dir, "out."+ending)
		if r := fulgur(t, "convert", "-a", "-o", to, from); r.code != 0 {
			t.Fatalf("to %s: exit code %d, want 0: %s", ending, r.code, r.stderr)
		}
		back := fulgur(t, "convert", "-a", "--format", "folded", to)
		if back.code != 0 || back.stdout != stacks {
			t.Errorf("through %s: exit code %d, want 0; output %q: %s", ending, back.code, back.stdout, back.stderr)
		}
	}
	for ending, want := range map[string]string{"txt": "parse", "svg": "<title>parse: 30 samples", "html": "<title>", "speedscope.json": `{"name":"parse"}`} {
		to := filepath.Join(dir, "out."+ending)
		if r := fulgur(t, "convert", "-o", to, from); r.code != 0 {
			t.Fatalf("to %s: exit code %d, want 0: %s", ending, r.code, r.stderr)
		}
		b, err := os.ReadFile(to)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), want) {
			t.Errorf("%s has no %s:\n%.500s", to, want, b)
		}
	}
}

// A profile for the Firefox Profiler has all samples.
func TestProfileFirefox(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	to := filepath.Join(t.TempDir(), "out.json.gz")
	if r := fulgur(t, "profile", "-e", "cpu-clock", "-F", "199", "-o", to, "--", "sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"); r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	b, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	p := firefoxtest.Check(t, b)
	if !p.Meta.Symbolicated || !slices.ContainsFunc(p.Threads, func(k firefoxtest.Thread) bool { return *k.Name == "sh" }) {
		t.Errorf("threads = %+v, want sh, and names", p.Threads)
	}
}

func TestDiff(t *testing.T) {
	testenv.AnyKernel(t)
	dir := t.TempDir()
	base := writeTo(t, filepath.Join(dir, "base.folded"), "server;main;parse 40\nserver;main;sort 60\n")
	changed := writeTo(t, filepath.Join(dir, "new.folded"), "server;main;parse 10\nserver;main;sort 30\nserver;main;log 10\n")
	for line, want := range map[string]string{
		"--no-normalize --format folded": "server;main;log 0 10\nserver;main;parse 40 10\nserver;main;sort 60 30\n",
		"--format folded":                "server;main;log 0 10\nserver;main;parse 20 10\nserver;main;sort 30 30\n",
		"--no-normalize":                 "40.0     10.0    -30.0    ±13.9       40.0     10.0    -30.0    ±13.9  parse",
		"--format md":                    "| 40.0 | 20.0 | -20.0 ±14.7 |",
		"--format json":                  `"function": "parse"`,
		"--format svg":                   `<title>log: 10 samples, 20.00%&#xA;before: 0 samples`,
		"--format html":                  "new.folded</title>",
	} {
		r := fulgur(t, slices.Concat([]string{"diff"}, strings.Fields(line), []string{base, changed})...)
		if r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("diff %s: exit code %d, want 0; no %q in %.500q: %s", line, r.code, want, r.stdout, r.stderr)
		}
	}
	if r := fulgur(t, "diff", "--value", "cpu", base, changed); r.code != 2 || !strings.Contains(r.stderr, `no value "cpu"; the profile has samples`) {
		t.Errorf("exit code %d, want 2: %s", r.code, r.stderr)
	}
}

// fulgur unwinds the copied stacks of perf.data to the same callers as perf, from files of
// the same build only.
func TestConvertCopiedStacks(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	perf := testenv.Tool(t, "perf")
	data := filepath.Join(t.TempDir(), "perf.data")
	program := compile(t, "paths.c", "paths", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls")
	if out, err := exec.Command(perf, "record", "-q", "-e", "cpu-clock:u", "-F", "499", "--call-graph", "dwarf,4096", "-o", data, program, "200").CombinedOutput(); err != nil {
		t.Fatalf("perf record: %v\n%s", err, out)
	}
	read := func() (map[string]int, string) {
		r := fulgur(t, "convert", "--format", "folded", data)
		if r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		found := map[string]int{}
		for stack, n := range folded(t, r.stdout) {
			found[onPaths(strings.Split(stack, ";"))] += n
		}
		return found, r.stderr
	}
	theirs := perfPaths(t, perf, data)
	ours, stderr := read()
	t.Logf("fulgur: %v; perf: %v", ours, theirs)
	if total(ours) != total(theirs) || total(ours) == 0 {
		t.Errorf("got %d samples, want perf's %d", total(ours), total(theirs))
	}
	for _, path := range paths {
		if ours[path] < theirs[path] || theirs[path] == 0 {
			t.Errorf("%s: got %d samples, perf has %d", path, ours[path], theirs[path])
		}
	}
	if ours := total(ours) - known(ours) - ours[""]; ours > 0 {
		t.Errorf("%d samples are on no path of the program: %s", ours, stderr)
	}
	changeBuildID(t, program)
	other, stderr := read()
	if total(other) != total(ours) || known(other) > 0 || !strings.Contains(stderr, "is another build") ||
		!strings.Contains(stderr, "user stacks truncated: code without an unwind table") {
		t.Errorf("got stacks %v by another build of the program: %s", other, stderr)
	}
}

// In copied stacks, fulgur follows the frame pointers of generated code, between code with unwind tables.
func TestConvertGeneratedCode(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	perf := testenv.Tool(t, "perf")
	data := filepath.Join(t.TempDir(), "perf.data")
	program := compile(t, "generated.c", "generated", "-O2", "-fomit-frame-pointer")
	if out, err := exec.Command(perf, "record", "-q", "-e", "cpu-clock:u", "-F", "499", "--call-graph", "dwarf", "-o", data, program).CombinedOutput(); err != nil {
		t.Fatalf("perf record: %v\n%s", err, out)
	}
	r := fulgur(t, "convert", "--format", "folded", data)
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("exit code %d, want 0 and no message: %s", r.code, r.stderr)
	}
	checkGenerated(t, folded(t, r.stdout))
}

// checkGenerated checks the stacks of testdata/generated.c.
func checkGenerated(t *testing.T, stacks map[string]int) {
	t.Helper()
	const outer, inner = 0x700000000000, 0x700000000020
	loop, loopEnd := map[string]uint64{"amd64": inner + 9, "arm64": inner + 12}[runtime.GOARCH], map[string]uint64{"amd64": inner + 13, "arm64": inner + 20}[runtime.GOARCH]
	counting, working := 0, 0
	for stack, n := range stacks {
		var path []string
		var leaf uint64
		for name := range strings.SplitSeq(stack, ";") {
			leaf = 0
			switch _, err := fmt.Sscanf(name, "[jit+0x%x]", &leaf); {
			case err == nil && leaf >= outer && leaf < inner:
				name = "outer"
			case err == nil && leaf >= inner && leaf < inner+0x20:
				name = "inner"
			}
			path = append(path, name)
		}
		want := []string{"main", "outer", "inner"}
		switch {
		case path[len(path)-1] == "step_work":
			want = append(want, "step_work")
			working += n
		case leaf >= loop && leaf < loopEnd: // at the first instructions of a function, its caller would be missing
			counting += n
		default:
			continue
		}
		if at := slices.Index(path, "main"); !slices.Equal(path[max(at, 0):], want) || !slices.Contains(path, "_start") {
			t.Errorf("%s: %d samples, want %q from _start on", stack, n, want)
		}
	}
	if counting == 0 || working == 0 {
		t.Errorf("got %d samples in generated code and %d in the function that it calls, want both: %v", counting, working, stacks)
	}
}

// changeBuildID makes an ELF file another build.
func changeBuildID(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	note := f.Section(".note.gnu.build-id")
	if note == nil {
		t.Fatal("no build ID")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[note.Offset+note.Size-1] ^= 1
	if err := os.WriteFile(path, b, 0o700); err != nil {
		t.Fatal(err)
	}
}

// perf.data has the same stacks as in perf's own output.
func TestConvertPerfData(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	perf := testenv.Tool(t, "perf")
	dir := t.TempDir()
	data := filepath.Join(dir, "perf.data")
	prog := compile(t, "shares.c", "shares")
	if out, err := exec.Command(perf, "record", "-q", "-e", "cpu-clock:u", "-F", "999", "-g", "-o", data, prog).CombinedOutput(); err != nil {
		t.Fatalf("perf record: %v\n%s", err, out)
	}
	script, err := exec.Command(perf, "script", "-i", data, "-F", "comm,pid,tid,time,period,event,ip,sym,dso").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := writeTo(t, filepath.Join(dir, "perf.txt"), string(script))
	want := fulgur(t, "convert", "--format", "folded", text)
	got := fulgur(t, "convert", "--format", "folded", data)
	if want.code != 0 || got.code != 0 {
		t.Fatalf("exit codes %d and %d: %s%s", want.code, got.code, want.stderr, got.stderr)
	}
	// Functions of the loader may have other names in fulgur's symbol tables.
	own := regexp.MustCompile(`;(most|some|little)$`)
	inOwn := func(stacks map[string]int) map[string]int {
		maps.DeleteFunc(stacks, func(stack string, _ int) bool { return !own.MatchString(stack) })
		return stacks
	}
	ours, theirs := inOwn(folded(t, got.stdout)), inOwn(folded(t, want.stdout))
	inTime := filepath.Join(dir, "out.json.gz")
	if r := fulgur(t, "convert", "-o", inTime, data); r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	b, err := os.ReadFile(inTime)
	if err != nil {
		t.Fatal(err)
	}
	p := firefoxtest.Check(t, b)
	if len(p.Threads) != 1 || *p.Threads[0].Name != "shares" || p.Meta.ProfilingEndTime < 100 {
		t.Errorf("threads = %+v in %v ms, want one thread, shares, for at least 100 ms", p.Threads, p.Meta.ProfilingEndTime)
	}
	page := filepath.Join(dir, "times.html")
	if r := fulgur(t, "convert", "--times", "-o", page, data); r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	if timed := fulgur(t, "convert", "--format", "folded", page); timed.code != 0 || timed.stdout != got.stdout {
		t.Errorf("a page with times has other samples:\n%s\nwant\n%s", timed.stdout, got.stdout)
	}
	if len(theirs) == 0 || !maps.Equal(ours, theirs) {
		t.Errorf("the stacks in the program's functions are\n%v\nand perf's are\n%v\nin\n%s\nand\n%s", ours, theirs, got.stdout, want.stdout)
	}
}
