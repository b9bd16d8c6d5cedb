package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/firefox/firefoxtest"
	"fulgur/internal/profile/timeline/timelinetest"
	"fulgur/internal/testenv"
)

// frontEnd is the Firefox Profiler on the command line
// (@firefox-devtools/profiler-cli, installed by test/install-deps.sh): the code
// of the web page that loads a profile and computes what it shows, without the
// page.
type frontEnd struct {
	t   *testing.T
	cli string
	env []string
}

// session is the front end's name for the loaded profile.
const session = "test"

// load checks a profile, and loads it into the front end, which must not request symbols.
func load(t *testing.T, write func(io.Writer) error) *frontEnd {
	t.Helper()
	var profile bytes.Buffer
	if err := write(&profile); err != nil {
		t.Fatal(err)
	}
	firefoxtest.Check(t, profile.Bytes())
	path := filepath.Join(t.TempDir(), "profile.json.gz")
	if err := os.WriteFile(path, profile.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return openFrontEnd(t, path, "PROFILER_CLI_NO_SYMBOLICATE=1")
}

// openFrontEnd loads the profile at a path or an address into the front end, a server
// process with env in its environment. It starts the server itself, since "load" does not
// wait long enough on a busy machine.
func openFrontEnd(t *testing.T, profile string, env ...string) *frontEnd {
	t.Helper()
	f := &frontEnd{t: t, cli: testenv.Tool(t, "profiler-cli")}
	if out, err := exec.Command(f.cli, "--version").CombinedOutput(); err != nil {
		testenv.Skip(t, "needs a profiler-cli that this machine's node can run: %v\n%s", err, out)
	}
	sessions := t.TempDir()
	f.env = append(append(os.Environ(), env...), "PROFILER_CLI_SESSION_DIR="+sessions)
	server := exec.Command(f.cli, "--daemon", profile, "--session", session)
	server.Env = f.env
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		_ = server.Wait() // killed
		close(gone)
	}()
	t.Cleanup(func() {
		_ = server.Process.Kill() // may have exited
		<-gone
	})
	// The process writes a file when it listens. A request before that finds no such file
	// and removes leftovers, perhaps the new socket.
	listens := filepath.Join(sessions, session+".json")
	var failure error
	testenv.Await(t, func() bool {
		if _, failure = os.Stat(listens); failure == nil {
			_, failure = f.run("status")
		}
		if failure == nil {
			return true
		}
		select {
		case <-gone:
			t.Fatalf("the front end exited before it loaded the profile: %v", failure)
		default:
		}
		return false
	}, func() string { return fmt.Sprintf("load the profile: %v", failure) })
	return f
}

// run runs a command of the front end and returns its output.
func (f *frontEnd) run(args ...string) ([]byte, error) {
	cmd := exec.Command(f.cli, append(args, "--session", session)...)
	cmd.Env = f.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("profiler-cli %q: %w\n%s%s", args, err, &stdout, &stderr)
	}
	return stdout.Bytes(), nil
}

// ask stores the answer to a command in result.
func (f *frontEnd) ask(result any, args ...string) {
	f.t.Helper()
	out, err := f.run(append(args, "--json")...)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := json.Unmarshal(out, result); err != nil {
		f.t.Fatalf("profiler-cli %q: %v\n%s", args, err, out)
	}
}

// share is the weight of a name in a thread's samples.
type share struct {
	Name          string
	Samples       float64
	Subcategories []share
}

// expectShare checks that one of shares has a weight.
func expectShare(t *testing.T, shares []share, name string, want float64) {
	t.Helper()
	i := slices.IndexFunc(shares, func(s share) bool { return s.Name == name })
	if i < 0 || math.Abs(shares[i].Samples-want) > 1e-6 {
		t.Errorf("no weight %[2]v of %[1]s in %+[3]v", name, want, shares)
	}
}

// samples is the answer to "thread samples".
type samples struct {
	WeightType        string
	CategoryBreakdown struct {
		TotalSamples float64
		Categories   []share
	}
	TopFunctionsByTotal []struct {
		Name         string
		TotalSamples float64
	}
}

// The front end shows the recorded data.
func TestFirefoxRecording(t *testing.T) {
	line := timelinetest.Recording(t)
	f := load(t, func(w io.Writer) error { return firefox.Write(w, line, firefox.Options{}) })

	var info struct {
		Processes []struct {
			PID, Name string
			CPUMs     float64
			Threads   []struct {
				ThreadHandle, Name string
			}
			Counters []struct {
				Name  string
				Stats []struct {
					Source string
					Value  float64
				}
			}
		}
	}
	f.ask(&info, "profile", "info", "--all")
	if len(info.Processes) != 2 || info.Processes[0].PID != "42" || info.Processes[0].Name != "tar" || info.Processes[1].PID != "42.1" {
		t.Fatalf("processes = %+v, want one with its threads", info.Processes)
	}
	if got := info.Processes[0].CPUMs; math.Abs(got-5.999999) > 1e-6 {
		t.Errorf("CPU time of the process = %v ms, want 6", got)
	}
	for counter, want := range map[string]float64{"Disk read": 4096, "Disk written": 512, "Page faults": 2, "rss": 4096} {
		found := false
		for _, c := range info.Processes[0].Counters {
			for _, s := range c.Stats {
				found = found || c.Name == counter && s.Source == "count-range" && s.Value == want
			}
		}
		if !found {
			t.Errorf("no counter %s with %v in %+v", counter, want, info.Processes[0].Counters)
		}
	}

	var s samples
	f.ask(&s, "thread", "samples", "--include-idle")
	expectShare(t, s.CategoryBreakdown.Categories, "Idle", 20.300001)
	idle := slices.IndexFunc(s.CategoryBreakdown.Categories, func(s share) bool { return s.Name == "Idle" })
	expectShare(t, s.CategoryBreakdown.Categories[max(idle, 0)].Subcategories, "disk read", 20.000001)
	expectShare(t, s.CategoryBreakdown.Categories[max(idle, 0)].Subcategories, "preempted", 0.3)
	f.ask(&s, "thread", "samples")
	if got := s.CategoryBreakdown.TotalSamples; got != 6 {
		t.Errorf("without idle samples: got %v ms, want 6", got)
	}

	var markers struct {
		FlatMarkers []struct {
			Name, Label     string
			Start, Duration float64
			HasStack        bool
		}
	}
	f.ask(&markers, "thread", "markers", "--list")
	var labels []string
	for _, m := range markers.FlatMarkers {
		labels = append(labels, m.Name+": "+m.Label)
		isHit := strings.Contains(m.Name, ":")
		if m.Name != "Renamed" && (!m.HasStack || !isHit && m.Duration < 20 || isHit && m.Duration > 0) {
			t.Errorf("marker = %+v, want 20 ms, or none for a hit, and a stack", m)
		}
	}
	want := []string{
		"Renamed: now called tar",
		"uprobe:main: uprobe:main",
		"BlockIO: write 512B  (8:16+8)",
		"syscalls:sys_enter_openat: dfd=-100 filename=/etc/\x1b\"\ufffd (\"key\")=",
		"BlockIO: read sync read-ahead 4,096B /etc/passwd (nvme0n1+2,048)",
		"OffCpu: disk read, uninterruptible; woken by kworker 9/10",
	}
	if !slices.Equal(labels, want) {
		t.Errorf("markers = \n%q, want\n%q", labels, want)
	}

	for _, k := range info.Processes[0].Threads {
		if k.Name == "Block I/O, bytes" {
			f.ask(&s, "thread", "samples", "--thread", k.ThreadHandle)
			if s.WeightType != "bytes" || s.CategoryBreakdown.TotalSamples != 4608 {
				t.Errorf("requests = %v %s, want 4608 bytes", s.CategoryBreakdown.TotalSamples, s.WeightType)
			}
			return
		}
	}
	t.Errorf("no thread of requests in %+v", info.Processes[0].Threads)
}

// The front end's sums are the same as the profile's.
func TestFirefoxProfile(t *testing.T) {
	p := encodetest.Typical()
	f := load(t, func(w io.Writer) error { return firefox.WriteProfile(w, p, firefox.Options{}) })
	var s samples
	f.ask(&s, "thread", "samples")
	const period = 10.101010 // in ms
	if got := s.CategoryBreakdown.TotalSamples; math.Abs(got-73*period) > 1e-6 {
		t.Errorf("weight of the first thread = %v ms, want %v", got, 73*period)
	}
	expectShare(t, s.CategoryBreakdown.Categories, "Kernel", 13*period)
	expectShare(t, s.CategoryBreakdown.Categories, "Inlined", 30*period)
	for name, want := range map[string]float64{"server!main": 66, "server!peek": 30, "server!walk": 9, "kernel.kallsyms!vfs_write": 11, "[stack lost]": 4} {
		i := slices.IndexFunc(s.TopFunctionsByTotal, func(f struct {
			Name         string
			TotalSamples float64
		}) bool {
			return f.Name == name
		})
		if i < 0 || math.Abs(s.TopFunctionsByTotal[i].TotalSamples-want*period) > 1e-6 {
			t.Errorf("no %[2]v samples of %[1]s in %+[3]v", name, want, s.TopFunctionsByTotal)
		}
	}
}

// A profile with hostile names, and a large profile, load.
func TestFirefoxLoads(t *testing.T) {
	for name, p := range map[string]func(io.Writer) error{
		"hostile": func(w io.Writer) error { return firefox.WriteProfile(w, encodetest.Hostile(), firefox.Options{}) },
		"large":   func(w io.Writer) error { return firefox.WriteProfile(w, encodetest.Large(3000), firefox.Options{}) },
		"empty":   func(w io.Writer) error { return firefox.WriteProfile(w, encodetest.Empty(), firefox.Options{}) },
	} {
		t.Run(name, func(t *testing.T) { load(t, p) })
	}
}
