package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile/encode/firefox/firefoxtest"
	"fulgur/internal/testenv"
)

// fired is a marker of a trigger in a file.
type fired struct {
	trigger, value string
	at             int64 // CLOCK_MONOTONIC, ns
}

// incidentsIn returns the files in a directory of a flight recorder, sorted by name. There is none yet if
// fulgur has not made the directory.
func incidentsIn(t *testing.T, dir string) (paths []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") { // it has no name yet
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

// firings returns the markers of triggers in a recording, and its start and end in ns of CLOCK_MONOTONIC.
func firings(t *testing.T, p *firefoxtest.Profile) (all []fired, start, end int64) {
	t.Helper()
	start = p.Meta.StartTimeAsClockMonotonicNanosecond
	ns := func(ms float64) int64 { return start + int64(ms*1e6) }
	labels := map[string]string{}
	for _, s := range p.Meta.MarkerSchema {
		for _, f := range s.Fields {
			labels[s.Name+"/"+f.Key] = f.Label
		}
	}
	for _, k := range p.Threads {
		var data []map[string]any
		var times []float64
		if err := errors.Join(json.Unmarshal(k.Markers["data"], &data), json.Unmarshal(k.Markers["startTime"], &times)); err != nil {
			t.Fatal(err)
		}
		for i, m := range data {
			if m["type"] != "trigger" {
				continue
			}
			f := fired{at: ns(times[i])}
			for key, value := range m {
				switch labels["trigger/"+key] {
				case "trigger":
					f.trigger, _ = value.(string)
				case "value":
					f.value, _ = value.(string)
				}
			}
			all = append(all, f)
		}
	}
	return all, start, ns(p.Meta.ProfilingEndTime)
}

// flightTarget is a program that does what the test says, and its own account.
type flightTarget struct {
	*dialog
	pid int
}

func startIncident(t *testing.T) *flightTarget {
	t.Helper()
	cmd := exec.Command(compile(t, "incident.c", "incident", "-pthread"))
	d := newDialog(t, cmd)
	startTarget(t, cmd)
	return &flightTarget{d, cmd.Process.Pid}
}

// do makes the target do something, and returns when that began and ended.
func (f *flightTarget) do(t *testing.T, what string, n int) (begin, end int64) {
	t.Helper()
	if _, err := fmt.Fprintln(f, what, n); err != nil {
		t.Fatal(err)
	}
	text := strings.Fields(f.line(t))
	var errs [2]error
	begin, errs[0] = strconv.ParseInt(text[0], 10, 64)
	end, errs[1] = strconv.ParseInt(text[1], 10, 64)
	if err := errors.Join(errs[0], errs[1]); err != nil {
		t.Fatal(err)
	}
	return begin, end
}

// startFlight starts a flight recorder of a target.
func startFlight(t *testing.T, pid int, dir string, flags ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, append([]string{"record", "--keep", "5s", "--after", "0", "-p", strconv.Itoa(pid), "-o", dir}, flags...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, cmd)
	return cmd
}

// awaitIncidents waits for a number of files.
func awaitIncidents(t *testing.T, cmd *exec.Cmd, dir string, n int) []string {
	t.Helper()
	testenv.Await(t, func() bool { return len(incidentsIn(t, dir)) >= n }, func() string {
		return fmt.Sprintf("got the files %q, want %d: %s", incidentsIn(t, dir), n, cmd.Stderr)
	})
	return incidentsIn(t, dir)
}

// Each trigger writes a file with its marker, at the moment that the program itself notes. The file has the whole of
// what happened.
func TestFlightTriggers(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	for _, test := range []struct {
		trigger, value string
		what           string
		n              int
		late           bool // noticed by a look, at most some seconds later
	}{
		{"wait>300ms", "", "wait", 400, false},
		{"latency:uprobe:INCIDENT:handle>200ms", "", "call", 250, false},
		{"cpu>1%", "%", "spin", 2000, true},
		{"memory>100M", "MiB", "grow", 150, true},
		{"exit", "code 7", "exit", 7, true},
		{"crash", "SIGABRT", "abort", 0, true},
		{"command:/usr/bin/test -e FILE", "code 0", "wait", 1, true},
	} {
		name, _, _ := strings.Cut(strings.ReplaceAll(test.trigger, ">", ":"), ":")
		t.Run(name, func(t *testing.T) {
			parallel(t)
			target := startIncident(t)
			dir := filepath.Join(t.TempDir(), "incidents")
			file := filepath.Join(t.TempDir(), "now")
			text := strings.NewReplacer("INCIDENT", fmt.Sprintf("/proc/%d/exe", target.pid), "FILE", file).Replace(test.trigger)
			if strings.Contains(text, "/proc/") {
				program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", target.pid))
				if err != nil {
					t.Fatal(err)
				}
				text = strings.ReplaceAll(text, fmt.Sprintf("/proc/%d/exe", target.pid), program)
			}
			cmd := startFlight(t, target.pid, dir, "--on", text)
			target.do(t, "wait", 1)
			if got := incidentsIn(t, dir); len(got) > 0 {
				t.Fatalf("got files %q before the incident", got)
			}
			begin, end := target.do(t, test.what, test.n)
			if name == "command" {
				writeTo(t, file, "")
			}
			path := awaitIncidents(t, cmd, dir, 1)[0]
			var r result
			if name == "exit" || name == "crash" {
				r = finish(t, cmd)
			} else {
				r = interrupt(t, cmd)
			}
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			if want := "Z-" + name + ".json.gz"; !strings.HasSuffix(path, want) {
				t.Errorf("got file %s, want one that ends in %s", path, want)
			}
			all, start, over := firings(t, readRecording(t, path))
			if len(all) == 0 || all[0].trigger != text || !strings.Contains(all[0].value, test.value) {
				t.Fatalf("got %+v, want trigger %q with value %q: %s", all, text, test.value, r.stderr)
			}
			at := all[0].at
			// A look comes at any time; the others are exact, but for the rounding of the file.
			const rounding = int64(time.Millisecond)
			if at < begin-rounding || !test.late && at > end+rounding {
				t.Errorf("got the trigger at %d, want it from %d to %d", at, begin, end)
			}
			if at < start || at > over+rounding || !test.late && start > begin+rounding {
				t.Errorf("the file lasts from %d to %d: got a trigger at %d, of what began at %d", start, over, at, begin)
			}
			if length := time.Duration(over - start); length > 6*time.Second+time.Duration(end-begin) {
				t.Errorf("got a file of %v, want about 5 s", length)
			}
		})
	}
}

// A thread that another keeps from its CPU fires at the moment that the program notes. On a busy machine, others do so
// at any time.
func TestFlightRunQueue(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	target := startIncident(t)
	dir := filepath.Join(t.TempDir(), "incidents")
	cmd := startFlight(t, target.pid, dir, "--on", "runq>100us", "--rest", "0", "--max-files", "1000")
	begin, end := target.do(t, "share", 100)
	var seen int
	testenv.Await(t, func() bool {
		paths := incidentsIn(t, dir)
		for _, path := range paths[seen:] {
			all, _, _ := firings(t, readRecording(t, path))
			for _, f := range all {
				if f.at >= begin && f.at <= end+int64(time.Millisecond) {
					return true
				}
			}
		}
		seen = len(paths)
		return false
	}, func() string {
		return fmt.Sprintf("no file of %q has a trigger from %d to %d", incidentsIn(t, dir), begin, end)
	})
	if r := interrupt(t, cmd); r.code != 0 {
		t.Errorf("exit code %d, want 0: %s", r.code, r.stderr)
	}
}

// The interval that fires is whole in its file, even if it is longer than the time to keep after its end, and waits of
// which a file has the beginning count once in the next file.
func TestFlightWhole(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	target := startIncident(t)
	dir := filepath.Join(t.TempDir(), "incidents")
	cmd := startFlight(t, target.pid, dir, "--on", "wait>1s", "--rest", "0", "--keep", "2s")
	signals := 0
	if _, err := fmt.Fprintln(target, "wait", 1500); err != nil {
		t.Fatal(err)
	}
	for range 3 { // each splits the wait
		if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		signals++
		awaitIncidents(t, cmd, dir, signals)
	}
	text := strings.Fields(target.line(t))
	paths := awaitIncidents(t, cmd, dir, signals+1)
	if r := interrupt(t, cmd); r.code != 0 || len(incidentsIn(t, dir)) != signals+1 {
		t.Fatalf("exit code %d, files %q: %s", r.code, incidentsIn(t, dir), r.stderr)
	}
	i := slices.IndexFunc(paths, func(p string) bool { return strings.HasSuffix(p, "-wait.json.gz") })
	if i < 0 {
		t.Fatalf("got files %q, want one of the wait", paths)
	}
	begin, err := strconv.ParseInt(text[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	p := readRecording(t, paths[i])
	all, start, _ := firings(t, p)
	if len(all) == 0 || start > begin+int64(time.Millisecond) {
		t.Errorf("got %+v from %d on; want the wait, which began at %d", all, start, begin)
	}
	longest := 0.0
	for _, k := range p.Threads {
		var starts, ends []*float64
		if err := errors.Join(json.Unmarshal(k.Markers["startTime"], &starts), json.Unmarshal(k.Markers["endTime"], &ends)); err != nil {
			t.Fatal(err)
		}
		for i := range starts {
			if starts[i] != nil && ends[i] != nil {
				longest = max(longest, *ends[i]-*starts[i])
			}
		}
	}
	if longest < 1499 {
		t.Errorf("the longest wait lasts %.0f ms, want at least 1500 ms", longest)
	}
}

// Ctrl-C writes nothing, unless that is a trigger. The newest files remain.
func TestFlightFiles(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	target := startIncident(t)
	dir := filepath.Join(t.TempDir(), "incidents")
	if r := interrupt(t, startFlight(t, target.pid, dir)); r.code != 0 || len(incidentsIn(t, dir)) != 0 {
		t.Errorf("exit code %d, files %q, want none: %s", r.code, incidentsIn(t, dir), r.stderr)
	}
	cmd := startFlight(t, target.pid, dir, "--on", "stop", "--rest", "0", "--max-files", "3", "--format", "html")
	last := ""
	for range 5 {
		if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		newest := func() string {
			all := incidentsIn(t, dir)
			if len(all) == 0 {
				return ""
			}
			return all[len(all)-1]
		}
		testenv.Await(t, func() bool { return newest() != last }, func() string { return fmt.Sprintf("got no file: %s", cmd.Stderr) })
		last = newest()
	}
	r := interrupt(t, cmd)
	paths := incidentsIn(t, dir)
	if r.code != 0 || len(paths) != 3 || !strings.HasSuffix(paths[2], "-stop.html") || paths[1] != last {
		t.Errorf("exit code %d, files %q, want 3, the last of the end and the one before %s: %s", r.code, paths, last, r.stderr)
	}
	for _, want := range []string{"6 files in ", "signal fired 5 times", "stop fired 1 time"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("the summary lacks %q: %s", want, r.stderr)
		}
	}
}

// A trigger that is wrong, or cannot work, is refused with what would work.
func TestFlightRefuses(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--keep", "5s", "--on", "explosion"}, "choose signal, stop, exit, crash, wait"},
		{[]string{"--keep", "5s", "--on", "wait"}, "the limit is missing"},
		{[]string{"--keep", "5s", "--on", "wait>fast"}, "is not a time"},
		{[]string{"--keep", "5s", "--on", "exit"}, "needs a process or a command"},
		{[]string{"--keep", "5s", "--on", "throttled"}, "cannot work here"},
		{[]string{"--keep", "5s", "--on", "command:/no/such/program"}, "cannot work here"},
		{[]string{"--keep", "5s", "--on", "wait>1s", "--no-offcpu"}, "needs waits"},
		{[]string{"--keep", "5s", "-o", "-"}, "directory"},
		{[]string{"--keep", "1ms"}, "--keep"},
		{[]string{"--on", "stop"}, "need --keep"},
		{[]string{"--keep", "5s", "--format", "pprof"}, "with times"},
		{[]string{"--keep", "5s", "--max-memory", "1M"}, "--max-memory"},
	} {
		args := append([]string{"record"}, test.args...)
		if !slices.Contains(args, "-o") {
			args = append(args, "-o", filepath.Join(t.TempDir(), "incidents"))
		}
		if r := fulgur(t, args...); r.code != 2 || !strings.Contains(r.stderr, test.want) {
			t.Errorf("%q: exit code %d, want 2 and %q: %s", test.args, r.code, test.want, r.stderr)
		}
	}
}

// A flight recorder that is killed while it writes leaves no partial file under a name of a recording. Triggers without
// end do not make it grow.
func TestFlightKilled(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	target := startIncident(t)
	dir := filepath.Join(t.TempDir(), "incidents")
	cmd := startFlight(t, target.pid, dir, "--rest", "0", "--max-files", "5")
	triggers := 30
	if testenv.IsLong() {
		triggers = 10_000
	}
	last, early := "", int64(0)
	for i := range triggers {
		if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		testenv.Await(t, func() bool {
			all := incidentsIn(t, dir)
			if len(all) == 0 || all[len(all)-1] == last {
				return false
			}
			last = all[len(all)-1]
			return true
		}, func() string { return fmt.Sprintf("no file %d: %s", i, cmd.Stderr) })
		if i == triggers/2 {
			early = residentOf(t, cmd.Process.Pid)
		}
	}
	if late := residentOf(t, cmd.Process.Pid); triggers > 1000 && late > early+early/10 {
		t.Errorf("got %d bytes of memory after %d triggers, and %d after %d", late, triggers, early, triggers/2)
	}
	target.do(t, "spin", 50)
	if err := errors.Join(cmd.Process.Signal(syscall.SIGUSR1), cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	paths := incidentsIn(t, dir)
	if len(paths) == 0 || len(paths) > 6 { // it may be killed before it removes the oldest one
		t.Errorf("got files %q, want 5", paths)
	}
	for _, path := range paths {
		readRecording(t, path) // complete
	}
}

// residentOf returns the resident memory of a process, in bytes.
func residentOf(t *testing.T, pid int) int64 {
	t.Helper()
	n, err := procfs.Process(pid).ResidentMemory()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
