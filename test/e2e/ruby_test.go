package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// rubies returns the interpreters of Ruby to test.
func rubies(t *testing.T) []interpreter {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		testenv.Unsupported(t, "fulgur reads Ruby's frames only on amd64")
	}
	return interpreters(t, "ruby", "rubies.sh", "FULGUR_TEST_RUBIES")
}

// startRuby runs testdata/frames.rb, and decodes the line that it prints into account.
func startRuby(t *testing.T, i interpreter, mode string, account any) *exec.Cmd {
	t.Helper()
	cmd := rubyCommand(t, i, mode)
	startAccounting(t, cmd, account)
	return cmd
}

// rubyCommand returns a command that runs testdata/frames.rb.
func rubyCommand(t *testing.T, i interpreter, mode string) *exec.Cmd {
	t.Helper()
	source, err := os.ReadFile("testdata/frames.rb")
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "frames.rb")
	argv := []string{i.program, "--disable-gems", script, mode}
	if i.root != "" {
		script = "/frames.rb"
		argv = []string{testenv.Tool(t, "chroot"), i.root, i.program, "--disable-gems", script, mode}
	}
	if err := os.WriteFile(filepath.Join(i.root, script), source, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "LANG=C.UTF-8")
	return cmd
}

// rubyModule is the module of Ruby's frames.
const rubyModule = "[ruby]"

// rubyFrame is a frame as the program itself records it, and whether code in C called it.
type rubyFrame struct {
	pyFrame
	byC bool
}

func (f *rubyFrame) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&f.name, &f.file, &f.line, &f.byC})
}

// rubyFrames returns the Ruby frames of a sample, leaf first, without those of methods that Ruby
// implements in Ruby: newer versions do not show them.
func (s streamed) rubyFrames() (chain []rubyFrame) {
	for i, f := range s.User {
		if f.Module == rubyModule && !strings.HasPrefix(f.File, "<internal:") {
			byC := i+1 == len(s.User) || s.User[i+1].Module != rubyModule
			chain = append(chain, rubyFrame{pyFrame{f.Function, f.File, f.Line}, byC})
		}
	}
	return chain
}

// executed reports whether each sequence of Ruby frames is between two native frames, the
// inner of them in the interpreter's function, which has no name in stripped libraries.
func (s streamed) executed() bool {
	at := ""
	for i, f := range s.User {
		if f.Module != rubyModule {
			continue
		}
		if i == 0 || i+1 == len(s.User) {
			return false
		}
		if before := s.User[i-1]; before.Module != rubyModule {
			if at != "" && before.Address != at {
				return false
			}
			at = before.Address
		}
	}
	return true
}

// Samples of threads that stay in one place have the stacks that the threads record
// themselves, with Ruby and native frames in the right order.
func TestRubyThreads(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for _, i := range byWays(rubies(t), "bpf", "ptrace") {
		t.Run(i.name, func(t *testing.T) {
			var account struct{ Noted map[int][]rubyFrame }
			cmd := startRuby(t, i, "threads", &account)
			matched, settled := map[int]int{}, map[int]bool{}
			sampleProcess(t, cmd, func(text string, s streamed) {
				want, ok := account.Noted[s.TID]
				if !ok {
					return // the main thread, or a thread of the runtime
				}
				got := s.rubyFrames()
				if len(got) == 0 {
					t.Errorf("got a sample without Ruby frames: %s", text)
					return
				}
				leaf := got[0]
				if leaf.name != "burn" && leaf.name != "burn_counting" {
					if settled[s.TID] {
						t.Errorf("got frames %+v of a thread that had reached another place", got)
					}
					return // it has just recorded its stack
				}
				settled[s.TID] = true
				// Native frames beyond the limit are cut, but not Ruby's.
				cut := len(s.User)-len(got) >= maxFrames
				deep := len(want) >= maxFrames
				if want = slices.Clone(want[:min(len(want), maxFrames-1)]); deep {
					want[len(want)-1].byC = got[len(got)-1].byC // the next frame is cut
				}
				// The native stack may end before, with the copy that a stop makes.
				atEnd := s.End == "depth limit" || deep && i.via == "ptrace" && s.End == "end of fulgur's stack copy"
				if !slices.Equal(got[1:], want) || !cut && atEnd != deep {
					t.Errorf("thread %d, end %s:\n got %+v\nwant %+v", s.TID, s.End, got[1:], want)
					return
				}
				if !cut && !s.executed() {
					t.Errorf("got Ruby frames that do not follow the interpreter's function: %s", text)
				}
				matched[s.TID]++
			}, "--via", i.via)
			for tid, chain := range account.Noted {
				if matched[tid] == 0 && !i.sparse() {
					t.Errorf("got no matching sample of thread %d, want %+v", tid, chain)
				}
			}
			t.Logf("%s: %d threads, %v samples", i.name, len(account.Noted), matched)
		})
	}
}

// Samples of a program that calls functions all the time show only calls that it makes.
// Functions that it creates all the time have their own names and files.
func TestRubyCalls(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for _, i := range byWays(rubies(t), "bpf", "ptrace") {
		t.Run(i.name, func(t *testing.T) {
			var account struct{ Edges [][]any }
			cmd := startRuby(t, i, "calls", &account)
			generated := func(s string) string {
				for _, prefix := range []string{"(generated", "dyn"} {
					if rest, ok := strings.CutPrefix(s, prefix); ok {
						return prefix + strings.TrimLeft(rest, "0123456789")
					}
				}
				return s
			}
			edge := func(caller, callee pyFrame) string {
				if strings.HasPrefix(caller.file, "(generated") {
					caller.line = 0 // it differs each time
				}
				return fmt.Sprint(generated(caller.name), generated(caller.file), caller.line, generated(callee.name), generated(callee.file))
			}
			edges := map[string]bool{}
			for _, e := range account.Edges {
				edges[edge(pyFrame{e[0].(string), e[1].(string), int(e[2].(float64))}, pyFrame{name: e[3].(string), file: e[4].(string)})] = true
			}
			samples, right, wrong, made := 0, 0, 0, map[string]bool{}
			sampleProcess(t, cmd, func(text string, s streamed) {
				if s.TID != cmd.Process.Pid {
					return // a thread of the runtime
				}
				samples++
				chain := s.rubyFrames()
				fault := ""
				switch {
				case len(chain) == 0:
					fault = "no Ruby frames"
				case !s.executed():
					fault = "Ruby frames that do not follow the interpreter's function"
				}
				for i, f := range chain {
					if number, ok := strings.CutPrefix(f.file, "(generated"); ok {
						number = strings.TrimSuffix(number, ")")
						made[number] = true
						if f.name != "generated" && f.name != "dyn"+number {
							fault = fmt.Sprintf("function %s of %s", f.name, f.file)
						}
					}
					if i+1 < len(chain) && f.name != "work" && f.name != "calls" && !edges[edge(chain[i+1].pyFrame, f.pyFrame)] {
						fault = fmt.Sprintf("%+v called from %+v", f, chain[i+1])
					}
				}
				if n := len(chain); fault == "" && (chain[n-1].name != "<main>" || n > 1 && chain[n-2].name != "calls") {
					fault = "the outermost frames are missing"
				}
				if fault == "" {
					right++
				} else {
					if wrong++; wrong <= 20 {
						t.Logf("%s in %s", fault, text)
					}
				}
			}, "--via", i.via)
			t.Logf("%s: %d of %d stacks are right; %d generated functions", i.name, right, samples, len(made))
			// The interpreter is between two functions in a few of 1000 samples. A mistake in the
			// merge makes most stacks wrong.
			least, functions := 100, 10
			if i.sparse() {
				least, functions = 5, 0
			}
			if most := stat.Binomial(samples, 0.01); samples < least || wrong > most.High {
				t.Errorf("%d of %d stacks are wrong, want at most %d, and at least %d stacks", wrong, samples, most.High, least)
			}
			if len(made) < functions {
				t.Errorf("%d generated functions, want at least %d", len(made), functions)
			}
		})
	}
}

// Forged structures that never end are truncated at the limits. They spoil only Ruby's frames: if
// the native stack is truncated, too, its reason is the stack's.
func TestForgedRuby(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for mode, want := range map[string]struct {
		frames int
		end    string
	}{"tags": {maxFrames, "depth limit"}, "garbage": {1, "unreadable stack"}, "deep": {1, "depth limit"}} {
		t.Run(mode, func(t *testing.T) {
			samples, summary := forged(t, "forged_ruby.c", mode)
			seen := 0
			for _, s := range samples {
				chain := s.rubyFrames()
				if len(chain) == 0 && (s.End == "complete" || mode == "deep" && s.End == want.end) {
					seen++ // before fulgur knew the process
					continue
				}
				if len(chain) != want.frames || s.End != want.end {
					t.Fatalf("got %d frames, end %s, want %+v", len(chain), s.End, want)
				}
				if f := chain[0]; f.file != "" || f.name != "" && !strings.HasPrefix(f.name, "forged") {
					t.Fatalf("got frame %+v, want no file, and the name forged", f)
				}
			}
			if seen == len(samples) {
				t.Errorf("got no sample with the forged frames, of %d: %s", seen, summary)
			}
		})
	}
}

// Processes of a program that fulgur has seen before have Ruby frames from their first sample on.
func TestRubyProcesses(t *testing.T) {
	testenv.Root(t)
	for _, i := range rubies(t) {
		t.Run(i.name, func(t *testing.T) {
			checkProcesses(t, rubyCommand(t, i, "processes"), "rb_ary_each", streamed.rubyFrames, func(f rubyFrame) string { return f.name })
		})
	}
}
