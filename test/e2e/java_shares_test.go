package e2e

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// tolerance is the difference of shares that a comparison with other measurements allows.
const tolerance = 0.02

// compareWith compares the shares of names in fulgur's samples with their shares in other counts.
// The part that is under another name, less what chance explains, must be within tolerance. If the
// other counts are exact, chance changes only fulgur's.
func compareWith(t *testing.T, what string, fulgur, other map[string]int, exact bool) {
	t.Helper()
	sum := func(counts map[string]int) (n int) {
		for _, c := range counts {
			n += c
		}
		return n
	}
	total, others := sum(fulgur), sum(other)
	if total == 0 || others == 0 {
		t.Fatalf("%s: %d samples, %d of the other", what, total, others)
	}
	names := maps.Clone(fulgur)
	maps.Copy(names, other)
	equal, excess := 0.0, 0.0
	for _, name := range slices.Sorted(maps.Keys(names)) {
		ours, theirs := float64(fulgur[name])/float64(total), float64(other[name])/float64(others)
		spread := func(n int) float64 {
			r := stat.Binomial(n, (ours+theirs)/2)
			return float64(r.High-r.Low) / 2 / float64(n)
		}
		chance := spread(total)
		if !exact {
			chance = math.Hypot(chance, spread(others))
		}
		equal += min(ours, theirs)
		excess += max(0, math.Abs(ours-theirs)-chance) / 2
		if max(ours, theirs) >= 0.005 {
			t.Logf("%s: %5.2f %% of %d, %5.2f %% of %d: %s", what, 100*ours, total, 100*theirs, others, name)
		}
	}
	t.Logf("%s: %.1f %% of the time is under the same name", what, 100*equal)
	if excess > tolerance {
		t.Errorf("%s: the shares differ by %.1f %% more than by chance", what, 100*excess)
	}
}

// Tasks have the same shares of samples as of the CPU time, which the program itself measures.
// HotSpot must not inline them, because it would describe some instructions of one as part of
// another. In tasks that consist of loops, methods have the same shares as leaves as in JFR's
// samples of the same run. In the others, JFR of OpenJDK 17 drops many samples.
func TestJavaShares(t *testing.T) {
	testenv.Long(t)
	testenv.Root(t)
	loops := []string{"Shares.sieve", "Shares.collatz", "Shares.sort"}
	flags := []string{"-XX:CompileCommand=quiet"}
	for _, task := range []string{"fibonacci", "sieve", "collatz", "words", "text", "sort", "apply"} {
		flags = append(flags, "-XX:CompileCommand=dontinline,Shares."+task)
	}
	for _, j := range javas(t) {
		t.Run(j.name, func(t *testing.T) {
			if j.root != "" {
				if err := os.MkdirAll(filepath.Join(j.root, "tmp"), 0o700); err != nil { // for JFR
					t.Fatal(err)
				}
			}
			r, printed := measureReady(t, j.command(t, flags, "Shares", "15"), "profile", "-F", "997", "--ring-size", "16M", "--stream", "--format", "jsonl")
			var others struct{ Own, JFR map[string]int }
			if err := json.Unmarshal([]byte(printed), &others); err != nil {
				t.Fatalf("%v in %s", err, printed)
			}
			own, tasks, leaves := others.Own, map[string]int{}, map[string]int{}
			jfrTasks, jfrLeaves := map[string]int{}, map[string]int{}
			for name, n := range others.JFR {
				task, leaf, _ := strings.Cut(name, " ")
				jfrTasks[task] += n
				if slices.Contains(loops, task) {
					jfrLeaves[leaf] += n
				}
			}
			for _, s := range streamedBy(t, r) {
				chain := s.javaFrames()
				i := slices.IndexFunc(chain, func(f pyFrame) bool { _, ok := own[f.name]; return ok })
				if s.Comm != "shares" || i < 0 {
					continue
				}
				tasks[chain[i].name]++
				if slices.Contains(loops, chain[i].name) {
					leaves[chain[0].name]++
				}
			}
			compareWith(t, "CPU time", tasks, own, true)
			t.Logf("JFR's samples by task: %v", jfrTasks)
			compareWith(t, "JFR", leaves, jfrLeaves, false)
		})
	}
}
