package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/google/pprof/profile"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// inlines is a program with inlined functions, and the form of its debug information.
type inlines struct {
	name    string
	flags   string
	prepare func(t *testing.T, program string)
}

var inlinesBuilds = []inlines{
	{name: "in the program"},
	{name: "compressed", flags: "-gz=zlib"},
	{name: "split", flags: "-gsplit-dwarf"},
	{name: "package", flags: "-gdwarf-4 -gsplit-dwarf", prepare: func(t *testing.T, program string) {
		tool(t, "dwp", "-e", program, "-o", program+".dwp")
		dwos, _ := filepath.Glob(filepath.Join(filepath.Dir(program), "*.dwo"))
		for _, dwo := range dwos {
			if err := os.Remove(dwo); err != nil {
				t.Fatal(err)
			}
		}
	}},
	{name: "debug link", prepare: separate},
	{name: "dwz", prepare: func(t *testing.T, program string) {
		// dwz moves the common parts of two files to a third one.
		twin, shared := program+".twin", program+".shared"
		tool(t, "cp", program, twin)
		tool(t, "dwz", "-m", shared, program, twin)
		separate(t, program)
	}},
}

// build compiles the program.
func (b inlines) build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "inlines")
	// Do not use testenv.Compile: with some flags, the compiler writes several files.
	tool(t, "g++", append(strings.Fields("-O2 -g -fno-omit-frame-pointer -Wall -Wextra -Werror -Wl,--build-id testdata/inlines.cc -o "+program), strings.Fields(b.flags)...)...)
	if b.prepare != nil {
		b.prepare(t, program)
	}
	return program
}

// separate moves the program's debug information to a file of its own.
func separate(t *testing.T, program string) {
	t.Helper()
	tool(t, "objcopy", "--only-keep-debug", program, program+".debug")
	tool(t, "objcopy", "--strip-all", "--add-gnu-debuglink="+program+".debug", program)
}

// tool runs a tool that prepares a test, and returns its output.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, name), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// rounds is the amount of the program's work: about a quarter of a second.
const rounds = "150"

// The least shares of the samples of app::work in the function churn, and of those in mix: work has
// a handful of instructions for thousands of churn, and most in the loop of churn are of mix.
const churnShare, mixShare = 0.98, 0.3

// checkInlined checks that at least the given share of the samples in a function is in the
// function that is inlined into it.
func checkInlined(t *testing.T, stacks map[string]int, function, inlined string, share float64) {
	t.Helper()
	all, in := count(stacks, function), count(stacks, function+inlined)
	t.Logf("%d samples in %s, %d in %s", all, function, in, inlined)
	if least := max(1, stat.Binomial(all, share).Low); in < least {
		t.Errorf("%d of %d samples in %s are in %s, want at least %d:\n%v", in, all, function, inlined, least, stacks)
	}
}

// Inlined functions are separate frames, for all sources of debug information.
func TestInlines(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	for _, b := range inlinesBuilds {
		t.Run(b.name, func(t *testing.T) {
			stacks := profile(t, []string{"-F", "997", "-U"}, b.build(t), rounds)
			checkInlined(t, stacks, ";app::work", ";app::Box<int>::churn", churnShare)
			checkInlined(t, stacks, ";app::work;app::Box<int>::churn", ";mix", mixShare)
		})
	}
}

// Flags choose names only, shorter names and raw names.
func TestNameFlags(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	program := inlines{}.build(t)
	for _, test := range []struct{ flag, function, inlined, reject string }{
		{"--no-inlines", ";app::work", "", "churn"},
		{"--short-names", ";app::work", ";Box::churn", "<int>"},
		{"--no-demangle", ";_ZN3app4workERKNS_3BoxIiEEj", ";_ZNK3app3BoxIiE5churnEj", "app::"},
	} {
		stacks := profile(t, []string{"-F", "997", "-U", test.flag}, program, rounds)
		checkInlined(t, stacks, test.function, test.inlined, churnShare)
		if n := count(stacks, test.reject); n > 0 {
			t.Errorf("%s: %d samples have %s, want none", test.flag, n, test.reject)
		}
	}
}

// pprof gets lines, start lines and build IDs.
func TestInlinesPprof(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	program := inlines{}.build(t)
	out := filepath.Join(t.TempDir(), "out.pb.gz")
	if r := fulgur(t, "profile", "-F", "997", "-o", out, "--", program, rounds); r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	p := readPprof(t, out)
	source, err := os.ReadFile(filepath.Join("testdata", "inlines.cc"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Split(string(source), "\n")
	id := regexp.MustCompile(`Build ID: ([0-9a-f]+)`).FindStringSubmatch(tool(t, "readelf", "-n", program))
	chains := 0
	for _, location := range p.Location {
		// The loader may have been sampled, and have debug info.
		if len(location.Line) != 3 || location.Line[2].Function.Name != "app::work" {
			continue
		}
		chains++
		for i, want := range []struct{ name, start, line string }{
			{"mix", "unsigned mix(", "x "},
			{"app::Box<int>::churn", "churn(unsigned", "x = mix("},
			{"app::work", "work(const", "box.churn("},
		} {
			l := location.Line[i]
			if l.Function.Name != want.name || !strings.HasSuffix(l.Function.Filename, "testdata/inlines.cc") ||
				!strings.Contains(text[l.Function.StartLine-1], want.start) || !strings.Contains(text[l.Line-1], want.line) {
				t.Errorf("%#x: %s, %s:%d, from line %d; want %+v", location.Address, l.Function.Name, l.Function.Filename, l.Line, l.Function.StartLine, want)
			}
		}
		if location.Mapping.BuildID != id[1] || !location.Mapping.HasInlineFrames {
			t.Errorf("mapping %+v, want build ID %s and inlined frames", location.Mapping, id[1])
		}
	}
	if chains == 0 {
		t.Error("got no location with three functions")
	}
	for _, m := range p.Mapping {
		if m.File == "[kernel.kallsyms]" && m.BuildID == "" {
			t.Error("the kernel has no build ID")
		}
	}
}

// readPprof parses a pprof file.
func readPprof(t *testing.T, path string) *pb.Profile {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := pb.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A file without symbols is reported with a remedy.
func TestNoSymbols(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	program := inlines{}.build(t)
	tool(t, "objcopy", "--strip-all", program)
	t.Setenv("DEBUGINFOD_URLS", "")
	want := regexp.MustCompile(`(?m)^  inlines: stripped \(build ID [0-9a-f]{12}…\), \d+ (?:samples|events); set DEBUGINFOD_URLS$`)
	page := filepath.Join(t.TempDir(), "page.html")
	for _, args := range [][]string{{"profile", "-F", "997", "-o", page}, {"record", "-o", filepath.Join(t.TempDir(), "recording.json.gz")}} {
		if r := fulgur(t, append(args, "--", program, rounds)...); r.code != 0 || !want.MatchString(r.stderr) {
			t.Errorf("%s: exit code %d, want 0; no line like %s:\n%s", args[0], r.code, want, r.stderr)
		}
	}
	// The page says so, too, even after conversions.
	again, last := filepath.Join(t.TempDir(), "again.html"), filepath.Join(t.TempDir(), "last.pb.gz")
	for _, step := range [][2]string{{page, again}, {again, last}} {
		if r := fulgur(t, "convert", "-o", step[1], step[0]); r.code != 0 {
			t.Fatalf("exit code %d: %s", r.code, r.stderr)
		}
	}
	if comments := readPprof(t, last).Comments; !slices.ContainsFunc(comments, func(line string) bool {
		return strings.HasPrefix(line, "inlines: stripped") && strings.HasSuffix(line, "; set DEBUGINFOD_URLS")
	}) {
		t.Errorf("got comments %q, want the file without symbols", comments)
	}
}

// The return address of a signal handler belongs to the trampoline, not to the
// preceding function.
func TestSignalHandler(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	trampoline := map[string]string{"amd64": "__restore_rt", "arm64": "__kernel_rt_sigreturn"}[runtime.GOARCH]
	// With optimization, leaf functions have no frame.
	program := compile(t, "signals.c", "signals", "-static", "-O0")
	stacks := profile(t, []string{"-F", "997", "-U"}, program)
	// Before fulgur knows the program, it may not find a caller.
	early := count(stacks, ";"+notReady+";on_signal") + count(stacks, ";"+noMapping+";on_signal")
	all, called := count(stacks, ";on_signal"), count(stacks, ";"+trampoline+";on_signal")
	if called == 0 || called+early != all {
		t.Errorf("%d of %d samples in the handler are called by the trampoline, and %d are too early:\n%v", called, all, early, stacks)
	}
}

// A server that does not answer delays the profile only until the user presses Ctrl-C. If fulgur
// asked the server while it sampled, that is the second Ctrl-C.
func TestDownloadInterrupted(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	program := inlines{}.build(t)
	tool(t, "objcopy", "--strip-all", program)
	target := exec.Command(program, "1000000000")
	if err := target.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = target.Process.Kill()
		_ = target.Wait()
	})
	for name, duration := range map[string]string{"after sampling": "0.3", "while sampling": "1h"} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 100)
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				asked <- struct{}{}
				<-r.Context().Done()
			}))
			defer server.Close()
			out := filepath.Join(t.TempDir(), "out.folded")
			cmd := command(t, "profile", "-F", "997", "-U", "-o", out, "-p", strconv.Itoa(target.Process.Pid), duration)
			cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS="+server.URL, "DEBUGINFOD_CACHE_PATH="+t.TempDir())
			cmd.Stderr = nil
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			testenv.Receive(t, asked, "fulgur does not ask the server")
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			for lines := bufio.NewScanner(stderr); lines.Scan(); {
				fmt.Fprintln(&said, lines.Text())
				if strings.Contains(lines.Text(), "(Ctrl-C skips it)") {
					time.Sleep(repeatTime)
					_ = cmd.Process.Signal(os.Interrupt) // it may have ended
				}
			}
			_ = cmd.Wait() // the exit code is checked
			if code := cmd.ProcessState.ExitCode(); code != 0 || !strings.Contains(said.String(), "debuginfod: "+server.URL+": interrupted") {
				t.Errorf("exit code %d, want 0 and that the server was not waited for: %s", code, &said)
			}
			if stacks := readFolded(t, out); len(stacks) == 0 {
				t.Error("got no stacks")
			}
		})
	}
}
