package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fulgur/internal/agent"
	"fulgur/internal/capture/rules"
)

// TestAgentRules reads rules from flags and from a file, which means the same.
func TestAgentRules(t *testing.T) {
	load := func(args ...string) (rules.Rules, error) {
		o, err := loadAgent(environment{args: append([]string{"agent"}, args...), stdout: t.Output(), stderr: t.Output()})
		return o.Measure.Rules, err
	}
	file := filepath.Join(t.TempDir(), "agent.yaml")
	for _, c := range []struct {
		args               []string
		file               string
		included, excluded string
		age                time.Duration
	}{
		{nil, "", "[]", "[]", 0},
		{[]string{"--include", "unit=nginx"}, "include: unit=nginx\n", "[unit=nginx]", "[]", 0},
		{
			[]string{"--include", "namespace=shop,pod=a-*", "--include=user=0", "--exclude", `label:a=b\,c`, "--min-age", "2", "--rate", "5:user=1"},
			"include:\n- namespace=shop,pod=a-*\n- user=0\nexclude: ['label:a=b\\,c']\nmin-age: 2\nrate: 5:user=1\n",
			"[namespace=shop,pod=a-* user=0]", `[label:a=b\,c]`, 2 * time.Second,
		},
	} {
		if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{c.args, {"--config", file}} {
			r, err := load(args...)
			if c.age > 0 && (len(r.Slower) != 1 || r.Slower[0].Rate != 5 || r.Slower[0].String() != "user=1") {
				t.Errorf("%q with %q: got the rates %v", args, c.file, r.Slower)
			}
			if err != nil || fmt.Sprint(r.Include) != c.included || fmt.Sprint(r.Exclude) != c.excluded || r.MinAge != c.age {
				t.Errorf("%q with %q: got %+v, error %v", args, c.file, r, err)
			}
		}
	}
	for text, want := range map[string]string{"include: nginx\n": "--include", "exclude: [unit=a, nmespace=b]\n": "label:KEY", "include: 'user=0,unit='\n": "followed by nothing", "rate: user=0\n": "5:namespace=batch"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := load("--config", file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, error %v, want %q", text, r, err, want)
		}
	}
}

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
