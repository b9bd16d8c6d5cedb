package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/agent"
)

// TestAgentBudget reads limits from flags and from a file, which means the same.
func TestAgentBudget(t *testing.T) {
	load := func(args ...string) (agent.Options, error) {
		return loadAgent(environment{args: append([]string{"agent"}, args...), stdout: t.Output(), stderr: t.Output()})
	}
	file := filepath.Join(t.TempDir(), "agent.yaml")
	for _, c := range []struct {
		flags, file string
		want        agent.Budget
		unwind      int64 // memory for unwind tables
	}{
		{"", "", agent.Budget{CPU: 0.01, Memory: 128 << 20}, 32 << 20},
		{"--max-cpu 2.5 --max-memory 64M", "max-cpu: 2.5\nmax-memory: 64M\n", agent.Budget{CPU: 0.025, Memory: 64 << 20}, 16 << 20},
		{"--max-cpu 2% --max-memory 65536", "max-cpu: 2%\nmax-memory: 65536\n", agent.Budget{CPU: 0.02, Memory: 65536}, 16384},
		{"--max-cpu off --max-memory off", "max-cpu: off\nmax-memory: off\n", agent.Budget{}, 0},
		{"--max-memory 64M --unwind-memory 1M", "max-memory: 64M\nunwind-memory: 1M\n", agent.Budget{CPU: 0.01, Memory: 64 << 20}, 1 << 20},
	} {
		if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{strings.Fields(c.flags), {"--config", file}} {
			o, err := load(args...)
			if err != nil || o.Budget != c.want || o.Measure.UnwindMemory != c.unwind {
				t.Errorf("%q with %q: got %+v, %d bytes for unwind tables, error %v; want %+v and %d", args, c.file, o.Budget, o.Measure.UnwindMemory, err, c.want, c.unwind)
			}
		}
	}
	for _, bad := range []string{"--max-cpu 0", "--max-cpu -1", "--max-cpu none", "--max-memory 0", "--max-memory 5G"} {
		if _, err := load(strings.Fields(bad)...); err == nil || !strings.Contains(err.Error(), "or off") {
			t.Errorf("%s: got error %v", bad, err)
		}
	}
}
