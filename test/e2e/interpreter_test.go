package e2e

import (
	"bufio"
	"encoding/json"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// interpreter is a program that runs code of another language, under test.
type interpreter struct {
	name string
	// root is the root directory in which it runs, or empty.
	root, program string
	via           string // how to sample it, "" by default
}

// byWays returns interpreters with each of the ways to sample them.
func byWays(list []interpreter, ways ...string) (by []interpreter) {
	for _, i := range list {
		for _, i.via = range ways {
			one := i
			one.name += " via " + i.via
			by = append(by, one)
		}
	}
	return by
}

// sparse reports whether a busy machine gives few samples.
func (i interpreter) sparse() bool { return i.via == "ptrace" }

// interpreters returns the system's program of the given name, and in long tests those that
// a script in the parent directory installs and lists instead. It installs them in the
// directory that the variable dir names, or in one of the test.
func interpreters(t *testing.T, name, script, dir string) []interpreter {
	t.Helper()
	system := []interpreter{{name: name, program: testenv.Tool(t, name)}}
	if !testenv.IsLong() || testenv.InVM() {
		return system
	}
	at := os.Getenv(dir)
	if at == "" {
		at = t.TempDir()
	}
	install := exec.Command(filepath.Join("..", script), at)
	install.Stderr = os.Stderr
	out, err := install.Output()
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	list := system
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 3 {
			t.Fatalf("%s: %q has not three fields", script, line)
		}
		list = append(list, interpreter{name: f[0], root: f[1], program: f[2]})
	}
	return list
}

// startAccounting starts a command for the length of the test, and decodes the line that it
// prints first, an account of its own frames, into account.
func startAccounting(t *testing.T, cmd *exec.Cmd, account any) {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	startTarget(t, cmd)
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	if err := json.Unmarshal(line, account); err != nil {
		t.Fatal(err)
	}
}

// sampleProcess samples a process until it has worked for a second, or longer in long
// tests, and calls yield with each sample and its text. args are more arguments of fulgur.
func sampleProcess(t *testing.T, cmd *exec.Cmd, yield func(text string, s streamed), args ...string) {
	t.Helper()
	work := time.Second
	if testenv.IsLong() {
		work *= 6
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	// If fulgur does not run for seconds, a small ring has no room for the names of new code.
	args = append([]string{"profile", "-p", pid, "-F", "997", "--ring-size", "16M", "--stream", "--format", "jsonl"}, args...)
	r := sampleWork(t, work, []string{pid}, args...)
	for text, s := range streamedBy(t, r) {
		yield(text, s)
	}
}

// streamedBy returns the samples that a run has streamed, each with its text.
func streamedBy(t *testing.T, r result) iter.Seq2[string, streamed] {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	return func(yield func(string, streamed) bool) {
		for text := range strings.Lines(r.stdout) {
			var s streamed
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			if !yield(text, s) {
				return
			}
		}
	}
}

// checkProcesses samples the short processes that cmd runs; see frames.py. Samples with a native
// function that calls the language's functions must have frames of the language, and those of
// burn_briefly the stack that the processes record themselves.
func checkProcesses[F comparable](t *testing.T, cmd *exec.Cmd, native string, frames func(streamed) []F, name func(F) string) {
	t.Helper()
	// At this rate, most processes have one or two samples.
	r, printed := measureReady(t, cmd, "profile", "--children", "-F", "29", "--stream", "--format", "jsonl")
	var want []F
	if err := json.Unmarshal([]byte(printed), &want); err != nil {
		t.Fatalf("%v: the processes have different stacks: %s", err, printed)
	}
	samples, matched, missing := 0, 0, 0
	for text, s := range streamedBy(t, r) {
		chain := frames(s)
		calls := slices.ContainsFunc(s.User, func(f streamedFrame) bool { return f.Function == native })
		switch {
		case s.PID == cmd.Process.Pid || !calls && len(chain) == 0:
			continue // in the dynamic loader, for example
		case len(chain) == 0:
			missing++
			t.Logf("no frames of the language in %s", text)
		case name(chain[0]) != "burn_briefly":
		case slices.Equal(chain[1:], want):
			matched++
		default:
			t.Errorf("got %+v, want %+v", chain[1:], want)
		}
		samples++
	}
	t.Logf("%d samples, %d with the recorded stack, %d without frames of the language", samples, matched, missing)
	// As in TestPythonCalls, the interpreter may be between two functions.
	if most := stat.Binomial(samples, 0.002).High; matched < 5 || missing > most {
		t.Errorf("%d of %d samples lack frames, want at most %d; %d have the recorded stack, want at least 5", missing, samples, most, matched)
	}
}
