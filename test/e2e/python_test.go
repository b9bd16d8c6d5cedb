package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// pythons returns the interpreters to test.
func pythons(t *testing.T) []interpreter {
	t.Helper()
	return interpreters(t, "python3", "pythons.sh", "FULGUR_TEST_PYTHONS")
}

// startPython runs testdata/frames.py, and decodes the line that it prints into account.
func startPython(t *testing.T, p interpreter, mode string, account any) *exec.Cmd {
	t.Helper()
	cmd := pythonCommand(t, p, mode)
	startAccounting(t, cmd, account)
	return cmd
}

// pythonCommand returns a command that runs testdata/frames.py.
func pythonCommand(t *testing.T, p interpreter, mode string) *exec.Cmd {
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
	return exec.Command(argv[0], argv[1:]...)
}

// pythonModule is the module of Python's frames.
const pythonModule = "[python]"

// pyFrame is a frame as the program itself records it.
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

// pythonEval is the interpreter's function, which runs Python's.
const pythonEval = "_PyEval_EvalFrameDefault"

// entered reports whether each sequence of Python frames follows the interpreter's function.
func (s streamed) entered() bool {
	for i, f := range s.User {
		if f.Module == pythonModule && (i == 0 || s.User[i-1].Module != pythonModule && s.User[i-1].Function != pythonEval) {
			return false
		}
	}
	return true
}

// samplePython samples process cmd, and calls yield with each sample and its text.
func samplePython(t *testing.T, p interpreter, cmd *exec.Cmd, yield func(text string, s streamed)) {
	t.Helper()
	sampleProcess(t, cmd, func(text string, s streamed) {
		if s.End == "complete" || s.End == "depth limit" {
			yield(text, s)
		} else {
			t.Logf("%s: a stack ends: %s", p.name, s.End)
		}
	}, "--via", p.via)
}

// maxFrames is the maximum number of native frames of a stack, and of its Python frames.
const maxFrames = 127

// Samples of threads that stay in one place have the stacks that the threads record
// themselves, with Python and native frames in the right order.
func TestPythonThreads(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for _, p := range byWays(pythons(t), "bpf", "ptrace") {
		t.Run(p.name, func(t *testing.T) {
			var account struct{ Noted map[int][]pyFrame }
			cmd := startPython(t, p, "threads", &account)
			matched, settled := map[int]int{}, map[int]bool{}
			samplePython(t, p, cmd, func(text string, s streamed) {
				want, ok := account.Noted[s.TID]
				got := s.pyFrames()
				if !ok || len(got) == 0 {
					t.Errorf("got a sample without Python frames, or of an unknown thread: %s", text)
					return
				}
				leaf := got[0]
				if leaf.name != "burn" && leaf.name != "burn_hashing" {
					if settled[s.TID] {
						t.Errorf("got frames %+v of a thread that had reached another place", got)
					}
					return // it has just recorded its stack
				}
				settled[s.TID] = true
				// Native frames beyond the limit are cut. Python's frames are all there,
				// even if the native frames that run them are cut.
				cut := len(s.User)-len(got) >= maxFrames
				deep := len(want) >= maxFrames
				want = want[:min(len(want), maxFrames-1)]
				if !slices.Equal(got[1:], want) || !cut && (s.End == "depth limit") != deep {
					t.Errorf("thread %d, end %s:\n got %+v\nwant %+v", s.TID, s.End, got[1:], want)
					return
				}
				if !cut && !s.entered() {
					t.Errorf("got Python frames that do not follow the interpreter's function: %s", text)
				}
				matched[s.TID]++
			})
			for tid, chain := range account.Noted {
				if matched[tid] == 0 && !p.sparse() {
					t.Errorf("got no matching sample of thread %d, want %+v", tid, chain)
				}
			}
			t.Logf("%s: %d threads, %v samples", p.name, len(account.Noted), matched)
		})
	}
}

// Samples of a program that calls functions all the time show only calls that it makes.
// Functions that it creates all the time have their own names and files.
func TestPythonCalls(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for _, p := range byWays(pythons(t), "bpf", "ptrace") {
		t.Run(p.name, func(t *testing.T) {
			var account struct {
				Edges [][]any
				Lines [][]any
				// Makers are functions whose calls return a generator or a coroutine. The
				// program does not trace these calls.
				Makers []string
			}
			cmd := startPython(t, p, "calls", &account)
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
					caller.line = 0 // it differs each time
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
			samples, right, made := 0, 0, map[string]bool{}
			samplePython(t, p, cmd, func(text string, s streamed) {
				samples++
				chain := s.pyFrames()
				fault := ""
				switch {
				case len(chain) == 0:
					fault = "no Python frames"
				case !s.entered():
					fault = "Python frames that do not follow the interpreter's function"
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
					fault = "the outermost frames are missing"
				}
				if fault == "" {
					right++
				} else {
					t.Logf("%s in %+v", fault, chain)
				}
			})
			t.Logf("%s: %d of %d stacks are right; %d generated functions", p.name, right, samples, len(made))
			// The interpreter is between two functions in up to one of 1000 samples. Twice as
			// many allow for slower machines: a mistake in the merge makes most stacks wrong.
			least, functions := 100, 10
			if p.sparse() {
				least, functions = 5, 0
			}
			if wrong := stat.Binomial(samples, 0.002); samples < least || samples-right > wrong.High {
				t.Errorf("%d of %d stacks are wrong, want at most %d, and at least %d stacks", samples-right, samples, wrong.High, least)
			}
			if len(made) < functions {
				t.Errorf("%d generated functions, want at least %d", len(made), functions)
			}
		})
	}
}

// Processes of a program that fulgur has seen before have Python frames from their first sample on.
func TestPythonProcesses(t *testing.T) {
	testenv.Root(t)
	for _, p := range pythons(t) {
		t.Run(p.name, func(t *testing.T) {
			checkProcesses(t, pythonCommand(t, p, "processes"), pythonEval, streamed.pyFrames, func(f pyFrame) string { return f.name })
		})
	}
}
