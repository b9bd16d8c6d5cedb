package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// python is an interpreter under test.
type python struct {
	name string
	// root is the root directory in which it runs, or empty.
	root, program string
}

// pythons returns the interpreters to test: Debian's, and in long tests all that
// test/pythons.sh installs.
func pythons(t *testing.T) []python {
	t.Helper()
	if !testenv.IsLong() || testenv.InVM() {
		return []python{{name: "python3", program: testenv.Tool(t, "python3")}}
	}
	dir := os.Getenv("FULGUR_TEST_PYTHONS")
	if dir == "" {
		dir = t.TempDir()
	}
	install := exec.Command("../pythons.sh", dir)
	install.Stderr = os.Stderr
	out, err := install.Output()
	if err != nil {
		t.Fatalf("install interpreters: %v", err)
	}
	var list []python
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		list = append(list, python{f[0], f[1], f[2]})
	}
	return list
}

// start runs testdata/frames.py, and decodes the line that it prints into account.
func (p python) start(t *testing.T, mode string, account any) *exec.Cmd {
	t.Helper()
	source, err := os.ReadFile("testdata/frames.py")
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "frames.py")
	argv := []string{p.program, script, mode}
	if p.root != "" {
		script = "/frames.py"
		argv = []string{testenv.Tool(t, "chroot"), p.root, p.program, script, mode}
	}
	if err := os.WriteFile(filepath.Join(p.root, script), source, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	if err := json.Unmarshal(line, account); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// pythonModule is the module of Python's frames.
const pythonModule = "[python]"

// pyFrame is a frame by the account of the program.
type pyFrame struct {
	name, file string
	line       int
}

func (f *pyFrame) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&f.name, &f.file, &f.line})
}

// pyFrames returns the Python frames of a sample, leaf first.
func (s streamed) pyFrames() (chain []pyFrame) {
	for _, f := range s.User {
		if f.Module == pythonModule {
			chain = append(chain, pyFrame{f.Function, f.File, f.Line})
		}
	}
	return chain
}

// entered reports whether each run of Python frames comes after the interpreter's function.
func (s streamed) entered() bool {
	for i, f := range s.User {
		if f.Module == pythonModule && (i == 0 || s.User[i-1].Module != pythonModule && s.User[i-1].Function != "_PyEval_EvalFrameDefault") {
			return false
		}
	}
	return true
}

// sample returns the samples of process cmd while it works for so long.
func (p python) sample(t *testing.T, cmd *exec.Cmd, work time.Duration, yield func(text string, s streamed)) {
	t.Helper()
	pid := strconv.Itoa(cmd.Process.Pid)
	r := sampleWork(t, work, []string{pid}, "profile", "-p", pid, "-F", "1999", "--stream", "--format", "jsonl")
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	for text := range strings.Lines(r.stdout) {
		var s streamed
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if s.End == "complete" || s.End == "depth limit" {
			yield(text, s)
		} else {
			t.Logf("%s: a stack ends: %s", p.name, s.End)
		}
	}
}

// maxFrames is the limit on the native frames of a stack, and on those of Python.
const maxFrames = 127

// Threads that do not move have the stacks that they note themselves, with Python and
// native frames in their order, whatever is between them.
func TestPythonThreads(t *testing.T) {
	testenv.Root(t)
	for _, p := range pythons(t) {
		t.Run(p.name, func(t *testing.T) {
			var account struct{ Noted map[int][]pyFrame }
			cmd := p.start(t, "threads", &account)
			matched, settled := map[int]int{}, map[int]bool{}
			p.sample(t, cmd, 3*time.Second, func(text string, s streamed) {
				want, ok := account.Noted[s.TID]
				got := s.pyFrames()
				if !ok || len(got) == 0 {
					t.Errorf("a sample without Python, or of another thread: %s", text)
					return
				}
				leaf := got[0]
				if leaf.name != "burn" && leaf.name != "burn_hashing" {
					if settled[s.TID] {
						t.Errorf("a thread that does not move is in %+v", got)
					}
					return // it has noted its stack a moment before
				}
				settled[s.TID] = true
				// Of native frames are as many kept. Python's are all there, whatever ran
				// the last ones.
				cut := len(s.User)-len(got) >= maxFrames
				deep := len(want) >= maxFrames
				want = want[:min(len(want), maxFrames-1)]
				if !slices.Equal(got[1:], want) || !cut && (s.End == "depth limit") != deep {
					t.Errorf("thread %d, end %s:\n got %+v\nwant %+v", s.TID, s.End, got[1:], want)
					return
				}
				if !cut && !s.entered() {
					t.Errorf("Python frames without the interpreter's: %s", text)
				}
				matched[s.TID]++
			})
			for tid, chain := range account.Noted {
				if matched[tid] < 20 {
					t.Errorf("thread %d has %d samples; it is in %+v", tid, matched[tid], chain)
				}
			}
			t.Logf("%s: %d threads, %v samples", p.name, len(account.Noted), matched)
		})
	}
}

// Threads that call all the time are only in stacks that exist: each line calls the function
// that is above it. Functions that are made all the time have their own names and files.
func TestPythonCalls(t *testing.T) {
	testenv.Root(t)
	for _, p := range pythons(t) {
		t.Run(p.name, func(t *testing.T) {
			var account struct {
				Edges [][]any
				Lines [][]any
				// Makers are functions that return a generator or a coroutine when they
				// are called, which the program does not trace.
				Makers []string
			}
			cmd := p.start(t, "calls", &account)
			generated := func(s string) string {
				if rest, ok := strings.CutPrefix(s, "<generated"); ok {
					return "<generated" + strings.TrimLeft(rest, "0123456789")
				}
				if rest, ok := strings.CutPrefix(s, "dyn"); ok {
					return "dyn" + strings.TrimLeft(rest, "0123456789")
				}
				return s
			}
			edge := func(caller pyFrame, callee pyFrame) string {
				if strings.HasPrefix(caller.file, "<generated") {
					caller.line = 0 // another one each time
				}
				return fmt.Sprint(generated(caller.name), generated(caller.file), caller.line, generated(callee.name), generated(callee.file))
			}
			edges, lines := map[string]bool{}, map[string]bool{}
			for _, e := range account.Edges {
				edges[edge(pyFrame{e[0].(string), e[1].(string), int(e[2].(float64))}, pyFrame{name: e[3].(string), file: e[4].(string)})] = true
			}
			for _, l := range account.Lines {
				for _, n := range l[2].([]any) {
					lines[fmt.Sprint(l[0], l[1], n)] = true
				}
			}
			work := 2 * time.Second
			if testenv.IsLong() {
				work *= 3
			}
			samples, right, made := 0, 0, map[string]bool{}
			p.sample(t, cmd, work, func(text string, s streamed) {
				samples++
				chain := s.pyFrames()
				fault := ""
				switch {
				case len(chain) == 0:
					fault = "no Python"
				case !s.entered():
					fault = "Python frames without the interpreter's"
				}
				for i, f := range chain {
					if number, ok := strings.CutPrefix(f.file, "<generated"); ok {
						number = strings.TrimSuffix(number, ">")
						made[number] = true
						if f.name != "<module>" && f.name != "dyn"+number {
							fault = fmt.Sprintf("function %s of %s", f.name, f.file)
						}
						if i+1 < len(chain) && f.name != "<module>" && chain[i+1].file != f.file {
							fault = fmt.Sprintf("%s called from %s", f.file, chain[i+1].file)
						}
					} else if i == 0 && f.name != "calls" && f.name != "<module>" && !lines[fmt.Sprint(f.name, f.file, f.line)] {
						fault = fmt.Sprintf("line %d of %s", f.line, f.name)
					}
					making := i == 0 && slices.Contains(account.Makers, f.name)
					if i+1 < len(chain) && f.name != "work" && !making && chain[i+1].name != "<module>" && !edges[edge(chain[i+1], f)] {
						fault = fmt.Sprintf("%+v called from %+v", f, chain[i+1])
					}
				}
				if n := len(chain); fault == "" && (chain[n-1].name != "<module>" || n > 1 && chain[n-2].name != "calls") {
					fault = "not from the beginning"
				}
				if fault == "" {
					right++
				} else {
					t.Logf("%s in %+v", fault, chain)
				}
			})
			t.Logf("%s: %d of %d stacks are right; %d generated functions", p.name, right, samples, len(made))
			if samples < 2000 || samples-right > samples/1000 {
				t.Errorf("%d of %d stacks are right", right, samples)
			}
			if len(made) < 10 {
				t.Errorf("%d generated functions", len(made))
			}
		})
	}
}
