package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/export/otlptest"
	"fulgur/internal/testenv"
)

// TestAgentBolt takes branch profiles of a program that the configuration file names, until
// there are two windows; perf2bolt accepts the sum.
func TestAgentBolt(t *testing.T) {
	testenv.Root(t)
	testenv.Long(t)
	program, dir := boltable(t, "branches"), t.TempDir()
	running(t, program)
	config := filepath.Join(t.TempDir(), "agent.yaml")
	receiver := otlptest.NewReceiver(t, nil)
	text := fmt.Sprintf("endpoint: %s\nlisten: 127.0.0.1:0\nbolt: %s\nbolt-dir: %s\nbolt-every: 1\nbolt-window: 1\nbolt-llvm: 22\n",
		receiver.HTTP(), program, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	agent, log := startAgent(t, "--config", config)
	name := regexp.MustCompile(`/branches\.\d{4}-\d\d-\d\d\.[0-9a-f]{40}\.preagg$`)
	windows := regexp.MustCompile(`\nfulgur_bolt_windows_total{result="added"} (\d+)\n`)
	for n := range 2 {
		var out string
		testenv.Await(t, func() bool {
			out = readLog(t, log)
			if strings.Contains(out, "no branch profile of "+program) && strings.Contains(out, "cannot count jumps here") {
				testenv.Unsupported(t, "%s", out)
			}
			url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`).FindString(out)
			if url == "" {
				return false
			}
			m := windows.FindStringSubmatch(get(t, url))
			if m == nil {
				return false
			}
			added, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			return added > n
		}, func() string { return fmt.Sprintf("only %d windows were added: %s", n, out) })
	}
	receiver.Await(1)
	stopAgent(t, agent, log)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 || !name.MatchString(files[0]) {
		t.Fatalf("got the files %q, %v", files, err)
	}
	for _, file := range files { // two around midnight
		accepted(t, 22, program, file)
	}
}
