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
	"strconv"
	"strings"
	"testing"

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
	stacks map[string]int64 // folded
	truth  truth            // what the workload counted itself
	stderr string
}

// measure runs a workload under fulgur.
func measure(t *testing.T, mode string, args ...string) measured {
	t.Helper()
	testenv.Root(t)
	out := filepath.Join(t.TempDir(), "out.folded")
	line := append(append([]string{}, args...), "--per-thread", "-o", out, "--", os.Args[0])
	cmd := exec.Command(program(t), line...)
	cmd.Env = append(os.Environ(), "WAITING_WORKLOAD="+mode, "WAITING_DIR="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("fulgur %s: %v\n%s", strings.Join(line, " "), err, &stderr)
	}
	m := measured{stacks: readFolded(t, out), stderr: stderr.String()}
	if err := json.Unmarshal(stdout.Bytes(), &m.truth); err != nil {
		t.Fatalf("the workload wrote %q: %v", &stdout, err)
	}
	return m
}

func readFolded(t *testing.T, path string) map[string]int64 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	stacks := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		space := strings.LastIndexByte(line, ' ')
		stack, value := line[:max(space, 0)], line[space+1:]
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		stacks[stack] += n
	}
	return stacks
}

// sum adds up the stacks of the threads of a name that end with suffix.
func (m measured) sum(comm, suffix string) (sum int64) {
	for stack, n := range m.stacks {
		if strings.HasPrefix(stack, comm+"-") && strings.HasSuffix(stack, suffix) {
			sum += n
		}
	}
	return sum
}

// near reports whether got is want, give or take 5 % and slack.
func near(got, want, slack int64) bool {
	slack += want / 20
	return got >= want-slack && got <= want+slack
}
