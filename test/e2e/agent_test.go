package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/export/otlptest"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile/otelprofiles"
	"fulgur/internal/testenv"
)

// startAgent starts an agent whose messages go to the returned file.
func startAgent(t *testing.T, args ...string) (agent *exec.Cmd, log string) {
	t.Helper()
	agent = command(t, append([]string{"agent", "--interval", "1"}, args...)...)
	log = filepath.Join(t.TempDir(), "log")
	f, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	agent.Stderr = f
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	return agent, log
}

// stopAgent ends an agent by a signal that allows it to send the rest. It returns the
// agent's account: the number of samples in each state.
func stopAgent(t *testing.T, agent *exec.Cmd, log string) map[string]int64 {
	t.Helper()
	if err := agent.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := agent.Wait(); err != nil {
		t.Errorf("%v: %s", err, readLog(t, log))
	}
	account := map[string]int64{}
	for _, m := range regexp.MustCompile(`(\d+) (?:samples? )?(taken|acknowledged|in the spool|lost)`).FindAllStringSubmatch(readLog(t, log), -1) {
		n, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		account[m[2]] += n
	}
	if account["taken"] == 0 || account["taken"] != account["acknowledged"]+account["in the spool"]+account["lost"] {
		t.Errorf("got account %v, want a balance: %s", account, readLog(t, log))
	}
	return account
}

// awaitCount waits until a log has text n times.
func awaitCount(t *testing.T, log, text string, n int) {
	t.Helper()
	var written string
	testenv.Await(t, func() bool {
		written = readLog(t, log)
		return strings.Count(written, text) >= n
	}, func() string { return fmt.Sprintf("want %q %d times in %s", text, n, written) })
}

func readLog(t *testing.T, log string) string {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// received returns the number of samples in requests, and the number of those with a
// function whose name ends in suffix. The agent repeats a request whose response was late,
// with the same profiles.
func received(requests []*otlptest.Request, suffix string) (samples, in int64) {
	seen := map[string]bool{}
	for _, q := range requests {
		d := q.Dictionary
		for _, r := range q.ResourceProfiles {
			for _, s := range r.ScopeProfiles {
				for _, p := range s.Profiles {
					if d.StringTable[p.SampleType.TypeStrindex] != "samples" || seen[string(p.ProfileId)] {
						continue
					}
					seen[string(p.ProfileId)] = true
					for _, sample := range p.Samples {
						samples += sample.Values[0]
						for _, l := range d.StackTable[sample.StackIndex].LocationIndices {
							for _, line := range d.LocationTable[l].Lines {
								if strings.HasSuffix(d.StringTable[d.FunctionTable[line.FunctionIndex].NameStrindex], suffix) {
									in += sample.Values[0]
								}
							}
						}
					}
				}
			}
		}
	}
	return samples, in
}

// attributesOf returns the text attributes of a process, nil if it has no samples.
func attributesOf(q *otlptest.Request, pid int) map[string]string {
	for _, r := range q.ResourceProfiles {
		all, found := map[string]string{}, false
		for _, a := range r.Resource.Attributes {
			all[a.Key] = a.Value.GetStringValue()
			found = found || a.Key == otelprofiles.PID && a.Value.GetIntValue() == int64(pid)
		}
		if found {
			return all
		}
	}
	return nil
}

// lowered reports whether a profile says that its rate is lower than the one requested, and has
// the period of a lower rate.
func lowered(q *otlptest.Request) bool {
	d := q.Dictionary
	for _, r := range q.ResourceProfiles {
		for _, s := range r.ScopeProfiles {
			for _, p := range s.Profiles {
				numbers := map[string]int64{}
				for _, i := range p.AttributeIndices {
					a := d.AttributeTable[i]
					numbers[d.StringTable[a.KeyStrindex]] = a.Value.GetIntValue()
				}
				requested := numbers[otelprofiles.RequestedFrequency]
				if requested > 0 && numbers[otelprofiles.Reduction] > 1 && p.Period > int64(time.Second)/requested {
					return true
				}
			}
		}
	}
	return false
}

// get returns a server's response.
func get(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%s: got %s, error %v, %q", url, response.Status, err, body)
	}
	return string(body)
}

// TestAgent sends windows, changes the configuration while running, and ends. The back ends
// receive every sample.
func TestAgent(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	workload := load(t, "publishes").Process.Pid
	awaitCount(t, procfs.Path(workload, "maps"), "/memfd:OTEL_CTX", 1)
	first, second := otlptest.NewReceiver(t, nil), otlptest.NewReceiver(t, nil)
	config := filepath.Join(t.TempDir(), "agent.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("frequency: 99\nendpoint: " + first.HTTP() + "\nlisten: 127.0.0.1:0\n")
	agent, log := startAgent(t, "--config", config)
	first.Await(2)
	var own map[string]string
	const enough = 100 // windows
	in := int64(0)
	for n := 1; own["service.name"] == "" || in == 0; n++ { // fulgur may look for both in a later window
		if n > enough {
			t.Fatalf("got the attributes %q and %d samples of the program in %d windows: %s", own, in, enough, readLog(t, log))
		}
		all := first.Await(n)
		if own["service.name"] == "" {
			own = attributesOf(all[n-1], workload)
		}
		_, in = received(all, ".long")
	}
	if path := own[otelprofiles.ExecutablePath]; !filepath.IsAbs(path) || own[otelprofiles.Executable] != filepath.Base(path) {
		t.Errorf("got the executable %q at %q", own[otelprofiles.Executable], path)
	}
	if own["service.name"] != "checkout" || own["deployment.environment.name"] != "test" || own["host.name"] == "forged" || own["container.id"] == "forged" {
		t.Errorf("got the attributes %q, want those that the process publishes, without the host's and the container's", own)
	}
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/metrics`).FindString(readLog(t, log))
	for path, want := range map[string]string{"metrics": "\nfulgur_bpf_memory_bytes ", "healthz": "ok\n"} {
		if body := get(t, strings.TrimSuffix(url, "metrics")+path); !strings.Contains(body, want) {
			t.Errorf("%s: got %q, want %q", path, body, want)
		}
	}

	reload := func() {
		t.Helper()
		if err := agent.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"frequenzy: 99\n", "frequency: -1\n", "endpoint: [1]\n", "a: b: c\n", "log: /tmp/x\n", "endpoint: ftp://x\n"} {
		write(bad)
		before := strings.Count(readLog(t, log), "not changed")
		reload()
		awaitCount(t, log, "not changed", before+1)
	}
	// No agent can stay within this limit, so it lowers the rate.
	write(fmt.Sprintf("frequency: 49\noffcpu: true\nmax-cpu: 0.0001%%\nendpoint: %s\nlisten: 127.0.0.1:0\n", second.HTTP()))
	reload()
	for n, slower, waits := 1, false, false; !slower || !waits; n++ {
		if n > enough {
			t.Fatalf("lower rate: %v, off-CPU time: %v, in %d windows: %s", slower, waits, enough, readLog(t, log))
		}
		q := second.Await(n)[n-1]
		slower = slower || lowered(q)
		waits = waits || slices.Contains(q.Dictionary.StringTable, otelprofiles.OffCPU)
	}
	if m := regexp.MustCompile(`\nfulgur_sampling_frequency_hertz (\d+)\n`).FindStringSubmatch(get(t, url)); len(m) != 2 || m[1] == "49" {
		t.Errorf("got metrics with %q, want a lower rate", m)
	}
	if m := get(t, url); !strings.Contains(m, "\nfulgur_waits_measured_ratio 0.") {
		t.Errorf("got the metrics %s, want fewer waits", m)
	}
	account := stopAgent(t, agent, log)
	samples, _ := received(append(first.Accepted(), second.Accepted()...), "")
	if samples != account["acknowledged"] {
		t.Errorf("got %d samples, want the account's %v", samples, account)
	}
}

// TestAgentKilled checks that profiles that no back end has accepted survive SIGKILL.
func TestAgentKilled(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	load(t, "shares")
	dir := filepath.Join(t.TempDir(), "spool")
	away := otlptest.NewReceiver(t, func(*otlptest.Request) otlptest.Reply { return otlptest.Reply{Status: 503} })
	agent, _ := startAgent(t, "--endpoint", away.HTTP(), "--spool", dir, "--listen", "off")
	awaitFile(t, filepath.Join(dir, fmt.Sprintf("%020d.window", 2)))
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait() // killed
	r := otlptest.NewReceiver(t, nil)
	agent, log := startAgent(t, "--endpoint", r.GRPC(), "--protocol", "grpc", "--spool", dir, "--listen", "off")
	r.Await(3)
	account := stopAgent(t, agent, log)
	if samples, _ := received(r.Accepted(), ""); samples != account["acknowledged"] {
		t.Errorf("got %d samples, want the account's %v", samples, account)
	}
	for _, want := range []string{"ended without notice", "of an earlier run"} {
		if text := readLog(t, log); !strings.Contains(text, want) {
			t.Errorf("got %s, want %q", text, want)
		}
	}
}
