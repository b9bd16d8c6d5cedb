package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// nodes returns the Node.js programs to test by name.
func nodes(t *testing.T) map[string]string {
	t.Helper()
	list := map[string]string{}
	for _, i := range interpreters(t, "node", "nodes.sh", "FULGUR_TEST_NODES") {
		list[i.name] = i.program
	}
	return list
}

// startNode runs testdata/frames.js, and decodes the line that it prints into account.
func startNode(t *testing.T, program string, account any, args ...string) *exec.Cmd {
	t.Helper()
	script, err := filepath.Abs("testdata/frames.js")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{"--expose-gc", script}, args...)...)
	startAccounting(t, cmd, account)
	return cmd
}

// jsModule is the module of JavaScript's frames.
const jsModule = "[javascript]"

// jsFrames returns the JavaScript frames of a sample that are in files of programs, leaf first.
func (s streamed) jsFrames() (chain []pyFrame) {
	for _, f := range s.User {
		if f.Module == jsModule && (f.File != "" || f.Function == "") && !strings.HasPrefix(f.File, "node:") {
			chain = append(chain, pyFrame{f.Function, f.File, f.Line})
		}
	}
	return chain
}

// unread reports whether a function or its line was not read. On a busy machine, the first
// samples with it may come too early.
func unread(chain []pyFrame) bool {
	return slices.ContainsFunc(chain, func(f pyFrame) bool { return f.name == "" || f.line == 0 })
}

// replacing reports whether V8 was moving a function to other code. While it moves a loop to
// better code, the frame of its builtin has no return address. While it moves a function back
// to the interpreter, it has popped the function's frame but not its frame pointer, and calls
// overwrite what the frame pointer points to.
func (s streamed) replacing() bool {
	for _, f := range s.User {
		if strings.HasPrefix(f.Function, "Builtins_") &&
			(strings.Contains(f.Function, "OnStackReplacement") || strings.Contains(f.Function, "DeoptimizationEntry")) {
			return true
		}
	}
	return false
}

// undecided reports whether the stack ends in one of V8's own functions whose code does not tell where its
// caller is, and says so.
func (s streamed) undecided() bool {
	return len(s.User) > 0 && strings.HasPrefix(s.User[len(s.User)-1].Function, "Builtins_") && s.End == "no unwind table"
}

// Samples of threads that stay in one place have the stacks that V8 reports there.
func TestNodeThreads(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for name, program := range nodes(t) {
		t.Run(name, func(t *testing.T) {
			var account struct{ Noted [][]pyFrame }
			cmd := startNode(t, program, &account, "threads")
			noted, matched := map[string]bool{}, map[string]bool{}
			for i, chain := range account.Noted {
				for j, f := range chain {
					if runes := []rune(f.name); len(runes) > 256 {
						account.Noted[i][j].name = string(runes[:256]) + "…"
					}
				}
				noted[fmt.Sprint(chain)] = true
			}
			samples, late, ended, settled := 0, 0, 0, map[int]bool{}
			sampleProcess(t, cmd, func(text string, s streamed) {
				got := s.jsFrames()
				if unread(got) {
					late++
					return
				}
				if len(got) == 0 || got[0].name != "burn" || s.End != "complete" {
					if s.undecided() {
						ended++
					} else if settled[s.TID] && !s.replacing() {
						t.Errorf("a thread left its place, or its stack is incomplete: %s", text)
					}
					return // the main thread, a thread of V8, or one that has not begun to burn
				}
				settled[s.TID] = true
				samples++
				if chain := fmt.Sprint(got[1:]); noted[chain] {
					matched[chain] = true
				} else {
					t.Errorf("a stack that no thread recorded: %s", chain)
				}
			})
			if most := stat.Binomial(samples, 0.05).High; ended > most {
				t.Errorf("%d of %d stacks end in V8's own functions, want at most %d", ended, samples, most)
			}
			for chain := range noted {
				if !matched[chain] && late == 0 {
					t.Errorf("no sample has the recorded stack %s", chain)
				}
			}
			t.Logf("%s: %d samples, %d of %d stacks; %d samples with functions that were not read", name, samples, len(matched), len(noted), late)
			if samples == 0 {
				t.Error("got no samples with all functions")
			}
		})
	}
}

var generated = regexp.MustCompile(`^(?:outer|inner)(\d+)$`)

// A program that makes functions and moves them all the time: a sample has only functions of
// one pair, with the right file.
func TestNodeCalls(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for name, program := range nodes(t) {
		t.Run(name, func(t *testing.T) {
			var account struct{}
			cmd := startNode(t, program, &account, "calls")
			numbers, unnamed, samples := map[string]int{}, 0, 0
			sampleProcess(t, cmd, func(text string, s streamed) {
				number := ""
				for _, f := range s.jsFrames() {
					samples++
					if f.name == "" {
						unnamed++
					}
					m := generated.FindStringSubmatch(f.name)
					if m == nil {
						continue
					}
					if number != "" && number != m[1] || f.file != "/generated/"+m[1]+".js" {
						t.Errorf("functions of several pairs, or another file: %s", text)
					}
					number = m[1]
				}
				numbers[number]++
			})
			t.Logf("%s: %d frames, %d without a name; %d generated functions", name, samples, unnamed, len(numbers))
			if len(numbers) < 10 {
				t.Errorf("%d generated functions, want at least 10", len(numbers))
			}
		})
	}
}

// V8 uses the memory of a collected function again for one with the same shape: a sample has
// the name of a function only while that function runs.
func TestNodeCollected(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	// Clocks may be adjusted meanwhile. Functions run for longer.
	const margin = 15 * time.Millisecond
	for name, program := range nodes(t) {
		t.Run(name, func(t *testing.T) {
			script, err := filepath.Abs("testdata/collected.js")
			if err != nil {
				t.Fatal(err)
			}
			account := filepath.Join(t.TempDir(), "account")
			r := fulgur(t, "profile", "-F", "999", "--stream", "--format", "jsonl", "--", program, "--expose-gc", script, account)
			if r.code != 0 {
				t.Fatalf("exit code %d: %s", r.code, r.stderr)
			}
			text, err := os.ReadFile(account)
			if err != nil {
				t.Fatal(err)
			}
			begin, end := map[string]time.Time{}, map[string]time.Time{}
			for line := range strings.Lines(string(text)) {
				var made string
				var first, last int64
				if _, err := fmt.Sscan(line, &made, &first, &last); err != nil {
					t.Fatal(err)
				}
				begin[made], end[made] = time.UnixMilli(first).Add(-margin), time.UnixMilli(last+1).Add(margin)
			}
			seen := map[string]int{}
			for _, s := range streamedBy(t, r) {
				at, err := time.Parse(time.RFC3339Nano, s.Time)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range s.User {
					if !strings.HasPrefix(f.Function, "made_") {
						continue
					}
					if seen[f.Function]++; at.Before(begin[f.Function]) || at.After(end[f.Function]) {
						t.Errorf("%s is in a sample at %s, and ran from %s to %s", f.Function, at, begin[f.Function], end[f.Function])
					}
				}
			}
			t.Logf("%s: samples of %d of %d functions", name, len(seen), len(begin))
			if len(seen) == 0 {
				t.Error("got no samples of the functions")
			}
		})
	}
}

// A program that calls a few functions all the time, which V8 compiles and inlines: each
// sample has the whole chain of functions, and lines within them.
func TestNodeInlined(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	callers := map[string][]string{
		"innermost": {"middle"}, "middle": {"area"}, "area": {"(anonymous)"}, "(anonymous)": {"each"},
		"each": {"around"}, "around": {"many_times"}, "many_times": {"hot"},
	}
	for name, program := range nodes(t) {
		t.Run(name, func(t *testing.T) {
			var account struct{ Lines map[string][2]int }
			cmd := startNode(t, program, &account, "hot")
			samples, innermost, lines := 0, 0, 0
			sampleProcess(t, cmd, func(text string, s streamed) {
				chain := s.jsFrames()
				if len(chain) == 0 || s.TID != cmd.Process.Pid || unread(chain) {
					return // a thread of V8, or its garbage collector
				}
				samples++
				if chain[0].name == "innermost" {
					innermost++
				}
				for i, f := range chain {
					want := callers[f.name]
					if f.name == "hot" {
						break
					}
					if want == nil || i+1 == len(chain) || !slices.Contains(want, chain[i+1].name) {
						t.Errorf("%s is called by another function: %+v", f.name, chain)
						break
					}
					if f.line != 0 {
						lines++
					}
					if r := account.Lines[f.name]; f.line != 0 && (f.line < r[0] || f.line > r[1]) {
						t.Errorf("line %d in %s, want %d to %d", f.line, f.name, r[0], r[1])
					}
				}
			})
			t.Logf("%s: %d samples, %d in the innermost function", name, samples, innermost)
			// The loop of the innermost function takes most of the time. Without inlined
			// functions, its samples would count as another's.
			if least := max(1, stat.Binomial(samples, 0.5).Low); innermost < least || lines == 0 {
				t.Errorf("%d of %d samples are in the innermost function, want at least %d; %d frames have a line", innermost, samples, least, lines)
			}
		})
	}
}
