package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/testenv"
)

func jobOf(release string, packages ...string) *job {
	return newJob(kernel{release: release}, queueOf(packages...))
}

// running is a machine that the test plays.
type running struct {
	machine
	end chan *report // nil if it fails to boot
}

// play runs jobs in machines that the test plays. The first channel receives each machine
// that is booted, and the second one is closed when no machine runs any more.
func play(slots int, jobs ...*job) (booted <-chan running, over <-chan struct{}) {
	boots, done := make(chan running, 100), make(chan struct{})
	go func() {
		defer close(done)
		runJobs(jobs, slots, func(m machine) (*report, error) {
			r := running{m, make(chan *report, 1)}
			boots <- r
			if report := <-r.end; report != nil {
				return report, nil
			}
			return nil, errors.New("no emulator")
		})
	}()
	return boots, done
}

// machines returns the next machines that are booted, by release and suffix.
func machines(t *testing.T, booted <-chan running, number int) map[string]running {
	t.Helper()
	list := map[string]running{}
	for range number {
		r := testenv.Receive(t, booted, "boot")
		list[r.release+r.suffix()] = r
	}
	return list
}

// drain runs the tests that are left, all of which pass, and ends the machine.
func (r running) drain(passed int) {
	report := &report{done: true, passed: passed}
	for r.queue.next().pkg != "" {
		report.passed++
	}
	r.end <- report
}

func TestNextJob(t *testing.T) {
	packages := []string{"a", "b", "c", "d"}
	// jobs returns jobs with 2, 4 and 3 packages and a machine each.
	jobs := func(change func(a, b, c *job)) []*job {
		a, b, c := jobOf("a", packages[:2]...), jobOf("b", packages...), jobOf("c", packages[:3]...)
		for _, j := range []*job{a, b, c} {
			j.machines, j.running = 1, 1
		}
		change(a, b, c)
		return []*job{a, b, c}
	}
	for _, tc := range []struct {
		name string
		jobs []*job
		want string // release, or ""
	}{
		{"the most packages are left", jobs(func(_, _, _ *job) {}), "b"},
		{"no machine yet", jobs(func(a, _, _ *job) { a.machines, a.running = 0, 0 }), "a"},
		{"a machine for each package that is left", jobs(func(_, b, _ *job) { b.running = 4 }), "c"},
		{"a machine did not reach its end", jobs(func(_, b, _ *job) { b.broken = true }), "c"},
		{"all machines have ended", jobs(func(_, b, _ *job) { b.running = 0 }), "c"},
		{"one package left", jobs(func(a, b, c *job) { a.queue.next(); b.running = 0; c.running = 0 }), ""},
	} {
		got := ""
		if j := nextJob(tc.jobs); j != nil {
			got = j.release
		}
		if got != tc.want {
			t.Errorf("%s: got job %q, want %q", tc.name, got, tc.want)
		}
	}
}

// When no job is left to start, two machines share one.
func TestShare(t *testing.T) {
	a, b := jobOf("a", "a"), jobOf("b", "a", "b", "c", "d")
	booted, over := play(2, a, b)
	first := machines(t, booted, 2)
	first["b"].queue.next()
	first["a"].drain(0)
	machines(t, booted, 1)["b-2"].drain(0)
	first["b"].drain(1)
	testenv.Receive(t, over, "end")
	for _, tc := range []struct {
		job              *job
		machines, passed int
	}{{a, 1, 1}, {b, 2, 4}} {
		if r := tc.job.report; !r.ok() || r.machines != tc.machines || r.passed != tc.passed {
			t.Errorf("%s: got %d packages in %d machines, ok %v; want %d in %d", tc.job.release, r.passed, r.machines, r.ok(), tc.passed, tc.machines)
		}
	}
}

// One machine at a time runs one job after the other.
func TestOneMachine(t *testing.T) {
	booted, over := play(1, jobOf("a", "a", "b", "c"), jobOf("b", "a", "b"))
	for _, want := range []string{"a", "b"} {
		got := machines(t, booted, 1)
		if _, ok := got[want]; !ok || len(booted) > 0 {
			t.Fatalf("got machines %v and %d more, want %s", got, len(booted), want)
		}
		got[want].drain(0)
	}
	testenv.Receive(t, over, "end")
	if len(booted) > 0 {
		t.Errorf("got %d machines more than jobs", len(booted))
	}
}

// If a machine ends too early, the other one of its kernel runs what is left. If that one
// does, too, the report lists what is left.
func TestEarlyEnd(t *testing.T) {
	const first, second = "the machine did not reach its end: a was running", "the machine did not reach its end: b was running"
	for _, tc := range []struct {
		name     string
		early    []string // in their order
		passed   int
		problems []string
	}{
		{"first", []string{"r"}, 3, []string{first}},
		{"second", []string{"r-2"}, 3, []string{second}},
		{"both", []string{"r-2", "r"}, 0, []string{second, first, "not run: c, d"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			j := jobOf("r", "a", "b", "c", "d")
			booted, over := play(2, j)
			both := machines(t, booted, 2)
			runs := map[string]string{"r": both["r"].queue.next().pkg, "r-2": both["r-2"].queue.next().pkg}
			for _, name := range tc.early {
				both[name].end <- &report{pkg: runs[name]}
				delete(both, name)
			}
			for _, m := range both {
				m.drain(1)
			}
			testenv.Receive(t, over, "end")
			slices.Sort(tc.problems)
			slices.Sort(j.report.problems)
			if diff := cmp.Diff(tc.problems, j.report.problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if j.report.ok() || j.report.passed != tc.passed || len(booted) > 0 {
				t.Errorf("ok() = %v with %d packages and %d more machines, want a failure with %d", j.report.ok(), j.report.passed, len(booted), tc.passed)
			}
		})
	}
}

// Machines that do not boot are not tried again and again.
func TestNoBoot(t *testing.T) {
	j := jobOf("r", "a", "b", "c")
	booted, over := play(2, j)
	for _, m := range machines(t, booted, 2) {
		m.end <- nil
	}
	testenv.Receive(t, over, "end")
	if len(booted) > 0 || j.err == nil || j.report.ok() {
		t.Errorf("got %d more machines, error %v, ok %v; want none and a failure", len(booted), j.err, j.report.ok())
	}
}

// The error of one machine counts, even if the others run all packages.
func TestOneBoots(t *testing.T) {
	j := jobOf("r", "a", "b", "c")
	booted, over := play(2, j)
	both := machines(t, booted, 2)
	both["r-2"].end <- nil
	both["r"].drain(0)
	testenv.Receive(t, over, "end")
	if j.err == nil || j.report.ok() || j.report.passed != 3 {
		t.Errorf("got error %v and %d packages, ok %v; want a failure with 3", j.err, j.report.passed, j.report.ok())
	}
}

// Logs of an earlier run's machines do not stay beside those of this run.
func TestRemoveOld(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"r.log", "r.console", "r-2.log", "r-2.console", "r-3.log", "r-cloud.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "r-2", "out"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := removeOld(dir, kernel{release: "r"}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff([]string{"r-cloud.log", "r.console", "r.log"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
