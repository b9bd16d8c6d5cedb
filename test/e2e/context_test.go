package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	pb "github.com/google/pprof/profile"

	"fulgur/internal/testenv"
)

// contextPrograms are the ways in which programs have the thread-local variable. The library, if
// any, is opened by the program, or with preload, loaded at its start.
var contextPrograms = []struct {
	name    string
	long    bool // much like the others
	preload bool
	program []string // the compiler's arguments
	library []string
}{
	{name: "program", program: []string{"-DVARIABLE", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"}},
	{name: "static", long: true, program: []string{"-DVARIABLE", "-static-pie", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"}},
	{name: "descriptor", library: []string{"-mtls-dialect=gnu2"}},
	{name: "descriptor at start", long: true, preload: true, library: []string{"-mtls-dialect=gnu2"}},
	{name: "descriptor in a large library", long: true, library: []string{"-mtls-dialect=gnu2", "-DPAD=65536"}},
	{name: "descriptor without a symbol", library: []string{"-mtls-dialect=gnu2", "-DPAD=65536", "-DHIDDEN"}},
	{name: "general dynamic", library: []string{"-mtls-dialect=gnu"}},
	{name: "general dynamic at start", long: true, preload: true, library: []string{"-mtls-dialect=gnu"}},
	{name: "general dynamic without a symbol", long: true, library: []string{"-mtls-dialect=gnu", "-DPAD=65536", "-DHIDDEN"}},
	{name: "initial exec", preload: true, library: []string{"-ftls-model=initial-exec"}},
	{name: "initial exec without a symbol", long: true, library: []string{"-ftls-model=initial-exec", "-DPAD=64", "-DHIDDEN"}},
}

// The samples of a program are divided among the contexts of its threads as its CPU time is, by its
// own account, however it accesses the thread-local variable.
func TestThreadContext(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	if runtime.GOARCH != "amd64" {
		testenv.Unsupported(t, "the compiler's arguments are for amd64")
	}
	seconds, frequency := "0.5", "2999"
	if testenv.InVM() { // a sample takes long
		seconds, frequency = "1.5", "997"
	}
	for _, test := range contextPrograms {
		t.Run(test.name, func(t *testing.T) {
			if test.long {
				testenv.Long(t)
			}
			program := testenv.Compile(t, "context", "gcc", append([]string{"-O2", "testdata/context.c"}, test.program...)...)
			cmd := exec.Command(program, seconds)
			if test.library != nil {
				library := testenv.Compile(t, "contextlib.so", "gcc", append([]string{"-O2", "-shared", "-fPIC", "testdata/contextlib.c"}, test.library...)...)
				if test.preload {
					cmd.Env = append(os.Environ(), "LD_PRELOAD="+library)
				} else {
					cmd.Args = append(cmd.Args, library)
				}
			}
			file := filepath.Join(t.TempDir(), "context.pb.gz")
			_, own := measureReady(t, cmd, "profile", "-F", frequency, "-o", file)
			compareShares(t, contextSamples(t, file, func(s *pb.Sample) int64 { return s.Value[0] }), ownTimes(t, own))
		})
	}
}

// musl's TLS descriptors and vector of modules differ from glibc's.
func TestThreadContextMusl(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	if runtime.GOARCH != "amd64" {
		testenv.Unsupported(t, "the compiler's arguments are for amd64")
	}
	dir := t.TempDir()
	compile := func(name string, args ...string) string { // not for the VMs, which have no musl
		out := filepath.Join(dir, name)
		if text, err := exec.Command(testenv.Tool(t, "musl-gcc"), append([]string{"-O2", "-o", out}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return out
	}
	program := compile("context", "testdata/context.c")
	for _, dialect := range []string{"gnu", "gnu2"} {
		library := compile(dialect+".so", "-shared", "-fPIC", "testdata/contextlib.c", "-mtls-dialect="+dialect, "-DPAD=65536")
		file := filepath.Join(dir, dialect+".pb.gz")
		_, own := measureReady(t, exec.Command(program, "0.5", library), "profile", "-F", "2999", "-o", file)
		compareShares(t, contextSamples(t, file, func(s *pb.Sample) int64 { return s.Value[0] }), ownTimes(t, own))
	}
}

// Waits belong to the context of the thread that waits.
func TestThreadContextOffCPU(t *testing.T) {
	testenv.Root(t)
	program := testenv.Compile(t, "context", "gcc", "-O2", "testdata/context.c", "-DVARIABLE", "-DWAIT", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1")
	file := filepath.Join(t.TempDir(), "context.pb.gz")
	_, own := measureReady(t, exec.Command(program, "1.5"), "offcpu", "-o", file)
	// In milliseconds, so that chance allows for preemption elsewhere.
	compareShares(t, contextSamples(t, file, func(s *pb.Sample) int64 { return s.Value[len(s.Value)-1] / 1e6 }), ownTimes(t, own))
}

// A library is found that the program opens while it is sampled.
func TestThreadContextOpened(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	program := testenv.Compile(t, "context", "gcc", "-O2", "testdata/context.c")
	library := testenv.Compile(t, "contextlib.so", "gcc", "-O2", "-shared", "-fPIC", "testdata/contextlib.c", "-mtls-dialect=gnu2")
	dir := t.TempDir()
	r := command(t, "profile", "-F", "997", "--by", "label=http.route", "--interval", "1s", "-o", filepath.Join(dir, "context.folded"), "--", program, "600", library)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	var windows []string
	testenv.Await(t, func() bool {
		var err error
		if windows, err = filepath.Glob(filepath.Join(dir, "*.folded")); err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(windows, func(window string) bool {
			text, err := os.ReadFile(window)
			return err == nil && strings.Contains(string(text), "/cart;")
		})
	}, func() string { return fmt.Sprintf("no label in %d windows: %s", len(windows), r.Stderr) })
	interrupt(t, r)
}

// contextSamples returns the sum of a value of the samples of each route, in a pprof file of
// testdata/context.c. It checks the other labels.
func contextSamples(t *testing.T, file string, value func(*pb.Sample) int64) map[string]int {
	t.Helper()
	p := readPprof(t, file)
	trace := map[string]string{"/cart": strings.Repeat("10", 16), "/search": strings.Repeat("11", 16)}
	spans := map[string][]string{ // of the two threads
		"/cart":   {strings.Repeat("20", 8), strings.Repeat("21", 8)},
		"/search": {strings.Repeat("22", 8), strings.Repeat("23", 8)},
	}
	samples, threads := map[string]int{}, map[string]bool{}
	for _, s := range p.Sample {
		burns := slices.ContainsFunc(s.Location, func(l *pb.Location) bool {
			return slices.ContainsFunc(l.Line, func(line pb.Line) bool { return line.Function.Name == "burn" })
		})
		if !burns {
			continue
		}
		route := "none"
		if list := s.Label["http.route"]; len(list) > 0 {
			route = list[0]
			if !slices.Equal(s.Label["trace_id"], []string{trace[route]}) || len(s.Label["span_id"]) != 1 || !slices.Contains(spans[route], s.Label["span_id"][0]) {
				t.Fatalf("got labels %v, want trace %s and one of the spans %v", s.Label, trace[route], spans[route])
			}
			threads[s.Label["span_id"][0]] = true
			if got := s.Label["process.pid"]; !slices.Equal(got, []string{"forged"}) {
				t.Fatalf("got labels %v", s.Label)
			}
		} else if s.Label["trace_id"] != nil {
			t.Fatalf("got labels %v without a route", s.Label)
		}
		samples[route] += int(value(s))
	}
	if len(threads) != 4 {
		t.Errorf("got spans %v, want one for each thread and route", threads)
	}
	return samples
}
