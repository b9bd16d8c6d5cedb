package e2e

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"fulgur/internal/testenv"
)

// Tasks have the same shares of samples as of the CPU time, which the program itself measures.
func TestNodeShares(t *testing.T) {
	testenv.Long(t)
	testenv.Root(t)
	script, err := filepath.Abs("testdata/shares.js")
	if err != nil {
		t.Fatal(err)
	}
	for name, program := range nodes(t) {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(program, "--single-threaded", script, "10")
			r, printed := measureReady(t, cmd, "profile", "-F", "997", "--ring-size", "16M", "--stream", "--format", "jsonl")
			var own map[string]int
			if err := json.Unmarshal([]byte(printed), &own); err != nil {
				t.Fatalf("%v in %s", err, printed)
			}
			tasks := map[string]int{}
			for _, s := range streamedBy(t, r) {
				chain := s.jsFrames()
				i := slices.IndexFunc(chain, func(f pyFrame) bool { _, ok := own[f.name]; return ok })
				if i >= 0 {
					tasks[chain[i].name]++
				}
			}
			compareWith(t, "CPU time", tasks, own, true)
		})
	}
}
