// Package waiting compares what fulgur says of waiting, disk requests and page
// faults with what programs know of themselves, whose behaviour is known.
package waiting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"fulgur/internal/testenv"
)

// built is the folder for what several tests need.
var built string

// TestMain lets the test binary be its own target: the rig has no compiler.
func TestMain(m *testing.M) {
	if mode := os.Getenv("WAITING_WORKLOAD"); mode != "" {
		if err := workload(mode); err != nil {
			fmt.Fprintln(os.Stderr, mode, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	var err error
	if built, err = os.MkdirTemp("", "fulgur-waiting-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(built)
	return m.Run()
}

// fulgurPath is where measure found fulgur.
var fulgurPath string

// program returns the path of fulgur, built by the first test that asks.
func program(t *testing.T) string {
	t.Helper()
	if fulgurPath == "" {
		fulgurPath = testenv.Program(t, "fulgur/cmd/fulgur", built)
	}
	return fulgurPath
}

// measured is what a run of fulgur on a workload gave.
type measured struct {
	profile *pprof.Profile
	truth   truth // what the workload counted itself
	stderr  string
}

// measure runs a workload under fulgur.
func measure(t *testing.T, mode string, args ...string) measured {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.pb.gz")
	m := run(t, mode, out, args...)
	m.profile = readProfile(t, out)
	return m
}

// run runs a workload under fulgur, which writes a file.
func run(t *testing.T, mode, out string, args ...string) measured {
	t.Helper()
	testenv.Root(t)
	cmd := exec.Command(program(t), append(slices.Clone(args), "-o", out, "--", os.Args[0])...)
	cmd.Env = environment(t, mode)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("fulgur %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	m := measured{stderr: stderr.String()}
	if err := json.Unmarshal(stdout.Bytes(), &m.truth); err != nil {
		t.Fatalf("the workload wrote %q: %v", &stdout, err)
	}
	return m
}

// environment is that of a workload, whose threads Go's runtime leaves alone.
func environment(t *testing.T, mode string) []string {
	// The race detector's runtime would sleep for a second at the end.
	return append(os.Environ(), "GORACE=atexit_sleep_ms=0", "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=16", "WAITING_WORKLOAD="+mode, "WAITING_DIR="+t.TempDir())
}

func readProfile(t *testing.T, path string) *pprof.Profile {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := pprof.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sum adds up a value of the samples of a task of that name with all of some
// functions in their stack; an empty name is any.
func (m measured) sum(t *testing.T, value, comm string, functions ...string) (sum int64) {
	t.Helper()
	index := slices.IndexFunc(m.profile.SampleType, func(v *pprof.ValueType) bool { return v.Type == value })
	if index < 0 {
		t.Fatalf("no value %s in %v", value, m.profile.SampleType)
	}
	for _, s := range m.profile.Sample {
		lacks := slices.ContainsFunc(functions, func(f string) bool { return f != "" && !has(s, f) })
		if !lacks && (comm == "" || slices.Contains(s.Label["comm"], comm)) {
			sum += s.Value[index]
		}
	}
	return sum
}

func has(s *pprof.Sample, function string) bool {
	return slices.ContainsFunc(s.Location, func(l *pprof.Location) bool {
		return slices.ContainsFunc(l.Line, func(l pprof.Line) bool { return l.Function.Name == function })
	})
}

// near reports whether got is want, give or take slack and 5 %; in the rig's
// machines, which are emulated, time goes by between any two looks at it.
func near(got, want, slack int64) bool {
	part := int64(20)
	if testenv.Patience(1) > 1 {
		part, slack = 2, 20*slack
	}
	slack += want / part
	return got >= want-slack && got <= want+slack
}
