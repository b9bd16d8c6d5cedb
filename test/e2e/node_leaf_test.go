package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// jitModule is the module of code without a file.
const jitModule = "[jit]"

// Most samples of a short function are taken before its frame is complete, or after the
// frame is gone. They have the function, and the builtin that called it.
func TestNodeLeaf(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for name, program := range nodes(t) {
		t.Run(name, func(t *testing.T) {
			var account struct{}
			cmd := startNode(t, program, &account, "short")
			const named, jitted, uncalled = 'n', 'j', 'u'
			var samples []rune
			sampleProcess(t, cmd, func(_ string, s streamed) {
				if s.TID != cmd.Process.Pid || len(s.User) < 2 {
					return // a thread of V8
				}
				switch leaf := s.User[0]; {
				case leaf.Module == jitModule:
					samples = append(samples, jitted)
				case leaf.Module == jsModule && leaf.Function == "compare" && strings.HasPrefix(s.User[1].Function, "Builtins_"):
					samples = append(samples, named)
				case leaf.Module == jsModule && leaf.Function == "compare":
					samples = append(samples, uncalled)
				}
			})
			// At first, fulgur has not read the function yet.
			samples = samples[max(slices.Index(samples, named), len(samples)/2):]
			number := func(of rune) int { return strings.Count(string(samples), string(of)) }
			unnamed, called := number(jitted), number(named)
			leaves := called + number(uncalled)
			t.Logf("%s: %d samples in the function, %d called by a builtin; %d without a name", name, leaves, called, unnamed)
			// Up to one sample in 20 is in code that V8 has just replaced.
			if most := stat.Binomial(leaves, 0.05).High; called == 0 || unnamed > most || leaves-called > most {
				t.Errorf("got %d samples in the function, %d called by a builtin, and %d without a name; want all but %d called by a builtin, and with a name", leaves, called, unnamed, most)
			}
		})
	}
}

// Compiled regular expressions have a name, whatever the instruction.
func TestNodeRegExp(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	script, err := filepath.Abs("testdata/regexp.js")
	if err != nil {
		t.Fatal(err)
	}
	for name, program := range nodes(t) {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program, script)
			startAccounting(t, cmd, &struct{}{})
			var named, unnamed int
			sampleProcess(t, cmd, func(_ string, s streamed) {
				if s.TID != cmd.Process.Pid || len(s.User) == 0 {
					return
				}
				switch leaf := s.User[0]; {
				case leaf.Module == jsModule && leaf.Function == "(RegExp)":
					named++
				case leaf.Module == jitModule && named > 0: // fulgur knows V8 by then
					unnamed++
				}
			})
			t.Logf("%s: %d samples in regular expressions, %d without a name", name, named, unnamed)
			// Up to one sample in 20 is in code that V8 has just replaced.
			if most := stat.Binomial(named, 0.05).High; named == 0 || unnamed > most {
				t.Errorf("got %d samples in regular expressions, and %d without a name; want some, and at most %d", named, unnamed, most)
			}
		})
	}
}

// cpuProfile is a profile of V8's own profiler.
type cpuProfile struct {
	Nodes []struct {
		ID        int
		CallFrame struct {
			FunctionName, URL string
		}
		Children []int
	}
	Samples []int
}

// selfSamples returns the samples of each function of a script, and of other functions under "".
// The profiler lists regular expressions as functions, but no builtins.
func (p *cpuProfile) selfSamples(script string) map[string]int {
	names, parents, self := map[int]string{}, map[int]int{}, map[int]int{}
	for _, n := range p.Nodes {
		names[n.ID] = n.CallFrame.FunctionName
		if names[n.ID] == "" {
			names[n.ID] = "(anonymous)"
		}
		if !strings.HasSuffix(n.CallFrame.URL, script) {
			names[n.ID] = strings.TrimPrefix(names[n.ID], "RegExp: ")
			if names[n.ID] == n.CallFrame.FunctionName {
				names[n.ID] = "" // another script, or the time outside of JavaScript
			} else {
				names[n.ID] = "RegExp"
			}
		}
		for _, c := range n.Children {
			parents[c] = n.ID
		}
	}
	for _, id := range p.Samples {
		for names[id] == "RegExp" {
			id = parents[id]
		}
		self[id]++
	}
	sums := map[string]int{}
	for id, n := range self {
		sums[names[id]] += n
	}
	return sums
}

// The self times of functions equal the ones of V8's own profiler in the same run. The overlap of
// the two is printed: V8 counts some inlined functions for their callers.
func TestNodeSelfTimes(t *testing.T) {
	testenv.Root(t)
	testenv.Long(t)
	for name, program := range nodes(t) {
		t.Run(name, func(t *testing.T) {
			const script = "mix.js"
			path, err := filepath.Abs(filepath.Join("testdata", script))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			r := fulgur(t, "profile", "-F", "1999", "--stream", "--format", "jsonl", "--",
				program, "--cpu-prof", "--cpu-prof-interval", "400", "--cpu-prof-dir", dir, path, "3000")
			if r.code != 0 {
				t.Fatalf("exit code %d: %s", r.code, r.stderr)
			}
			files, err := filepath.Glob(filepath.Join(dir, "*.cpuprofile"))
			if err != nil || len(files) != 1 {
				t.Fatalf("got profiles %q, %v; want one", files, err)
			}
			text, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			var profile cpuProfile
			if err := json.Unmarshal(text, &profile); err != nil {
				t.Fatal(err)
			}
			want, got := profile.selfSamples(script), map[string]int{}
			for _, s := range streamedBy(t, r) {
				for _, f := range s.User {
					if strings.Contains(f.Function, "CollectGarbage") {
						break // V8's profiler has the garbage collector for a function
					}
					if f.Module != jsModule || f.File == "" {
						continue // a builtin counts for its caller
					}
					if strings.HasSuffix(f.File, script) {
						got[f.Function]++
					}
					break
				}
			}
			delete(want, "")
			overlap, samples, wantSamples := 0.0, 0, 0
			for _, n := range got {
				samples += n
			}
			for _, n := range want {
				wantSamples += n
			}
			if samples == 0 || wantSamples == 0 {
				t.Fatalf("got %d samples of fulgur and %d of V8", samples, wantSamples)
			}
			all := maps.Clone(want)
			maps.Copy(all, got)
			for _, f := range slices.Sorted(maps.Keys(all)) {
				a, b := 100*float64(got[f])/float64(samples), 100*float64(want[f])/float64(wantSamples)
				overlap += min(a, b)
				t.Logf("%-14s %5.1f %% of fulgur's samples, %5.1f %% of V8's", f, a, b)
			}
			t.Logf("%s: overlap %.1f %% of %d and %d samples", name, overlap, samples, wantSamples)
			if overlap < 85 {
				t.Errorf("got an overlap of %.1f %%", overlap)
			}
		})
	}
}
