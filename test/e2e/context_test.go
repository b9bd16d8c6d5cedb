package e2e

import (
	"os"
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
	preload bool
	program []string // the compiler's arguments
	library []string
}{
	{name: "program", program: []string{"-DVARIABLE", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"}},
	{name: "static", program: []string{"-DVARIABLE", "-static-pie", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"}},
	{name: "descriptor", library: []string{"-mtls-dialect=gnu2"}},
	{name: "descriptor at start", preload: true, library: []string{"-mtls-dialect=gnu2"}},
	{name: "descriptor in a large library", library: []string{"-mtls-dialect=gnu2", "-DPAD=65536"}},
	{name: "descriptor without a symbol", library: []string{"-mtls-dialect=gnu2", "-DPAD=65536", "-DHIDDEN"}},
	{name: "general dynamic", library: []string{"-mtls-dialect=gnu"}},
	{name: "general dynamic at start", preload: true, library: []string{"-mtls-dialect=gnu"}},
	{name: "general dynamic without a symbol", library: []string{"-mtls-dialect=gnu", "-DPAD=65536", "-DHIDDEN"}},
	{name: "initial exec", preload: true, library: []string{"-ftls-model=initial-exec"}},
	{name: "initial exec without a symbol", library: []string{"-ftls-model=initial-exec", "-DPAD=64", "-DHIDDEN"}},
}

// The samples of a program are divided among the contexts of its threads as its CPU time is, by its
// own account, however it accesses the thread-local variable.
func TestThreadContext(t *testing.T) {
	testenv.Root(t)
	if runtime.GOARCH != "amd64" {
		testenv.Unsupported(t, "the compiler's arguments are for amd64")
	}
	for _, test := range contextPrograms {
		t.Run(test.name, func(t *testing.T) {
			program := testenv.Compile(t, "context", "gcc", append([]string{"-O2", "testdata/context.c"}, test.program...)...)
			file := filepath.Join(t.TempDir(), "context.pb.gz")
			args := []string{"profile", "-F", "997", "-o", file, "--"}
			if test.preload {
				args = append(args, "env", "LD_PRELOAD="+contextLibrary(t, test.library))
			}
			args = append(args, program, "1.5")
			if test.library != nil && !test.preload {
				args = append(args, contextLibrary(t, test.library))
			}
			r := fulgur(t, args...)
			if r.code != 0 {
				t.Fatalf("exit code %d: %s", r.code, r.stderr)
			}
			compareShares(t, contextShares(t, file), ownShares(t, r.stdout))
		})
	}
}

// Waits belong to the context of the thread that waits.
func TestThreadContextOffCPU(t *testing.T) {
	testenv.Root(t)
	program := testenv.Compile(t, "context", "gcc", "-O2", "testdata/context.c", "-DVARIABLE", "-DWAIT", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1")
	file := filepath.Join(t.TempDir(), "context.pb.gz")
	r := fulgur(t, "offcpu", "-o", file, "--", program, "1.5")
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	compareShares(t, contextShares(t, file), ownShares(t, r.stdout))
}

func contextLibrary(t *testing.T, args []string) string {
	t.Helper()
	return testenv.Compile(t, "contextlib.so", "gcc", append([]string{"-O2", "-shared", "-fPIC", "testdata/contextlib.c"}, args...)...)
}

// contextShares returns the shares of the routes in a pprof file of testdata/context.c. It checks
// the other labels.
func contextShares(t *testing.T, file string) map[string]float64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := pb.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	trace := map[string]string{"/cart": strings.Repeat("10", 16), "/search": strings.Repeat("11", 16)}
	spans := map[string][]string{ // of the two threads
		"/cart":   {strings.Repeat("20", 8), strings.Repeat("21", 8)},
		"/search": {strings.Repeat("22", 8), strings.Repeat("23", 8)},
	}
	samples, threads := map[string]float64{}, map[string]bool{}
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
		samples[route] += float64(s.Value[len(s.Value)-1])
	}
	if len(threads) != 4 {
		t.Errorf("got spans %v, want one for each thread and route", threads)
	}
	return shares(samples)
}
