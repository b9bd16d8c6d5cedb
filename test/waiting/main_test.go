// Package waiting compares fulgur's results about waiting, disk requests and page faults
// with the counts of programs with known behavior.
package waiting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"fulgur/internal/testenv"
)

// built is the folder of files that several tests use.
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

// fulgurPath is the path of fulgur.
var fulgurPath string

// program returns the path of fulgur. The first call builds it.
func program(t *testing.T) string {
	t.Helper()
	if fulgurPath == "" {
		fulgurPath = testenv.Program(t, "fulgur/cmd/fulgur", built)
	}
	return fulgurPath
}

// measured is the result of running fulgur on a workload.
type measured struct {
	profile *pprof.Profile
	truth   truth // the workload's own counts
	stderr  string
}

// measure runs a workload under fulgur.
func measure(t *testing.T, mode string, args ...string) measured {
	t.Helper()
	return measureUnder(t, mode, nil, args...)
}

// measureUnder is like measure, but fulgur runs the workload through a wrapper program
// with the given command line.
func measureUnder(t *testing.T, mode string, runner []string, args ...string) measured {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.pb.gz")
	m := runUnder(t, mode, out, runner, args...)
	m.profile = readProfile(t, out)
	return m
}

// run runs a workload under fulgur, which writes a file.
func run(t *testing.T, mode, out string, args ...string) measured {
	t.Helper()
	return runUnder(t, mode, out, nil, args...)
}

// runUnder is like run, but through a wrapper program with the given command line.
func runUnder(t *testing.T, mode, out string, runner []string, args ...string) measured {
	t.Helper()
	testenv.Root(t)
	// --verbose, since all losses matter, and not only the one that matters most.
	cmd := testenv.Command(t, program(t), slices.Concat(args, []string{"--verbose", "-o", out, "--"}, runner, []string{os.Args[0]})...)
	cmd.Env = environment(t, mode)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("fulgur %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return measured{truth: parseTruth(t, stdout.Bytes()), stderr: stderr.String()}
}

func parseTruth(t *testing.T, b []byte) (known truth) {
	t.Helper()
	if err := json.Unmarshal(b, &known); err != nil {
		t.Fatalf("the workload wrote %q: %v", b, err)
	}
	return known
}

// environment returns the environment of a workload, which keeps Go's runtime from
// disturbing its threads.
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

// sum adds up a value of the samples of tasks with the given name whose stacks contain
// all given functions. An empty name matches any task.
func (m measured) sum(t *testing.T, value, comm string, functions ...string) (sum int64) {
	t.Helper()
	index := m.index(t, value)
	for _, s := range m.profile.Sample {
		lacks := slices.ContainsFunc(functions, func(f string) bool { return f != "" && !has(s, f) })
		if !lacks && (comm == "" || slices.Contains(s.Label["comm"], comm)) {
			sum += s.Value[index]
		}
	}
	return sum
}

// index returns the index of a value among the samples' values.
func (m measured) index(t *testing.T, value string) int {
	t.Helper()
	index := slices.IndexFunc(m.profile.SampleType, func(v *pprof.ValueType) bool { return v.Type == value })
	if index < 0 {
		t.Fatalf("no value %s in %v", value, m.profile.SampleType)
	}
	return index
}

// functions returns the names of the functions of a sample, leaf first.
func functions(s *pprof.Sample) (names []string) {
	for _, location := range s.Location {
		for _, line := range location.Line {
			names = append(names, line.Function.Name)
		}
	}
	return names
}

func has(s *pprof.Sample, function string) bool { return slices.Contains(functions(s), function) }

var (
	missedWaits    = regexp.MustCompile(`(?m)^ +(\d+) waits? missed`)
	skippedSamples = regexp.MustCompile(`(?m)^ +(\d+) [\w -]+ skipped`)
)

// missed returns the number of waits, of all threads, without a report of their end by
// the kernel, which happens on busy machines.
func (m measured) missed() int64 { return m.loss(missedWaits) }

// skipped returns the number of samples, waits and page faults for which the kernel did not run
// the BPF program, because another one was running on that CPU.
func (m measured) skipped() int64 { return m.loss(skippedSamples) }

// loss returns the sum of the numbers in a kind of loss that the summary reports.
func (m measured) loss(of *regexp.Regexp) (sum int64) {
	for _, match := range of.FindAllStringSubmatch(m.stderr, -1) {
		n, _ := strconv.ParseInt(match[1], 10, 64)
		sum += n
	}
	return sum
}

// slack is the tolerance between a measured time and the program's own, in ns.
func (m measured) slack() int64 { return slack + m.missed()*int64(2*napTime) }

// tolerance is the maximum difference of a time that is measured twice: slack plus 5 %.
// In the rig's emulated machines, time passes between any two readings of the clock.
func tolerance(want, slack int64) int64 {
	if testenv.Patience(1) > 1 {
		return want/2 + 20*slack
	}
	return want/20 + slack
}
