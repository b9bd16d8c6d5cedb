package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/export/otlptest"
	"fulgur/internal/profile/otelprofiles"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
	"fulgur/internal/unwind/unwindtest"
)

// samplesOf returns the number of samples of a process in requests. The agent repeats a request whose
// response was late, with the same profiles.
func samplesOf(requests []*otlptest.Request, pid int) (samples int) {
	seen := map[string]bool{}
	for _, q := range requests {
		for _, r := range q.ResourceProfiles {
			for _, a := range r.Resource.Attributes {
				if a.Key != otelprofiles.PID || a.Value.GetIntValue() != int64(pid) {
					continue
				}
				for _, s := range r.ScopeProfiles {
					for _, p := range s.Profiles {
						if q.Dictionary.StringTable[p.SampleType.TypeStrindex] != "samples" || seen[string(p.ProfileId)] {
							continue
						}
						seen[string(p.ProfileId)] = true
						for _, sample := range p.Samples {
							samples += int(sample.Values[0])
						}
					}
				}
			}
		}
	}
	return samples
}

// metric returns a value of the page of metrics.
func metric(t *testing.T, page, name string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("got no %s in %s", name, page)
	}
	value, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// ownProgram starts a workload as a program of its own.
func ownProgram(t *testing.T, mode string) (cmd *exec.Cmd, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "own")
	from, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(path)
	cmd.Env = append(os.Environ(), "E2E_WORKLOAD="+mode)
	startTarget(t, cmd)
	return cmd, path
}

// TestAgentRules excludes one of two processes, and after a reload the other one. The samples of each
// match its CPU time, taken or excluded.
func TestAgentRules(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	const frequency = 199
	one, first := ownProgram(t, "shares")
	two, second := ownProgram(t, "shares")
	pids := []int{one.Process.Pid, two.Process.Pid}
	for _, pid := range pids {
		testenv.AwaitCPUTime(t, pid, 50*time.Millisecond)
		if err := unwindtest.Stop(pid); err != nil {
			t.Fatal(err)
		}
	}
	receiver := otlptest.NewReceiver(t, nil)
	endpoint := receiver.HTTP()
	config := filepath.Join(t.TempDir(), "agent.yaml")
	write := func(excluded string) {
		t.Helper()
		text := fmt.Sprintf("frequency: %d\nendpoint: %s\nlisten: 127.0.0.1:0\nmax-cpu: off\nexclude:\n- program=%s\n- unit=no-such-unit\n", frequency, endpoint, excluded)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(second)
	agent, log := startAgent(t, "--config", config)
	awaitCount(t, log, "measuring", 1)
	awaitCount(t, log, "/metrics", 1)
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`).FindString(readLog(t, log))

	// work lets both processes work, and returns the CPU time of each, and the page of metrics after that.
	work := func() (used [2]time.Duration, page string) {
		t.Helper()
		windows := metric(t, get(t, url), "fulgur_windows_total")
		testenv.Await(t, func() bool { // until the measurement goes on
			return metric(t, get(t, url), "fulgur_windows_total") > windows
		}, func() string { return readLog(t, log) })
		for i, pid := range pids {
			before, err := testenv.CPUTime(pid)
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			testenv.AwaitCPUTime(t, pid, 500*time.Millisecond)
			if err := unwindtest.Stop(pid); err != nil {
				t.Fatal(err)
			}
			after, err := testenv.CPUTime(pid)
			if err != nil {
				t.Fatal(err)
			}
			used[i] = after - before
		}
		// A whole window later, all samples are in the metrics.
		windows = metric(t, get(t, url), "fulgur_windows_total")
		testenv.Await(t, func() bool {
			page = get(t, url)
			return metric(t, page, "fulgur_windows_total") > windows+1
		}, func() string { return page + readLog(t, log) })
		taken := metric(t, page, "fulgur_samples_taken_total")
		testenv.Await(t, func() bool {
			return metric(t, get(t, url), "fulgur_samples_acknowledged_total")+metric(t, page, `fulgur_samples_lost_total{cause="unrecorded"}`) >= taken
		}, func() string { return get(t, url) + readLog(t, log) })
		return used, page
	}
	// matches checks the number of samples for a CPU time. Another task may run at each tick of the clock.
	matches := func(name string, samples int, used time.Duration, page string) {
		t.Helper()
		want := stat.Ticks(used, time.Second/frequency, 2*int(used*frequency/time.Second))
		want.Low = max(want.Low-want.Low/20-int(metric(t, page, `fulgur_losses_total{cause="skipped"}`)), 1)
		if want.High += want.High/20 + 1; samples < want.Low || samples > want.High {
			t.Errorf("%s: got %d samples, want %s for %v", name, samples, want, used)
		}
		t.Logf("%s: %d samples for %v, want %s", name, samples, used, want)
	}
	used, page := work()
	matches("taken", samplesOf(receiver.Accepted(), pids[0]), used[0], page)
	if n := samplesOf(receiver.Accepted(), pids[1]); n > 0 {
		t.Errorf("got %d samples of the excluded process", n)
	}
	excluded, seconds := metric(t, page, "fulgur_samples_excluded_total"), metric(t, page, "fulgur_excluded_cpu_seconds_total")
	matches("excluded", int(excluded), used[1], page)
	if per := seconds / excluded * frequency; per < 0.99 || per > 1.01 {
		t.Errorf("got %v s excluded in %v samples", seconds, excluded)
	}

	write(first)
	if err := agent.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	awaitCount(t, log, "measuring", 2)
	before := samplesOf(receiver.Accepted(), pids[0])
	used, page = work()
	if n := samplesOf(receiver.Accepted(), pids[0]); n != before {
		t.Errorf("got %d more samples of the process that is excluded now", n-before)
	}
	matches("taken after the reload", samplesOf(receiver.Accepted(), pids[1]), used[1], page)
	matches("excluded after the reload", int(metric(t, page, "fulgur_samples_excluded_total")-excluded), used[0], page)

	write("/**,nothing=x")
	if err := agent.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	awaitCount(t, log, "not changed", 1)
	stopAgent(t, agent, log)
	for _, want := range []string{"2 rules select the processes", "samples excluded", `"nothing=x" is not a rule`} {
		if text := readLog(t, log); !strings.Contains(text, want) {
			t.Errorf("got %s, want %q", text, want)
		}
	}
}
