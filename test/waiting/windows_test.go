package waiting

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"fulgur/internal/testenv"
)

// readWindows returns the profiles of the windows that were written for an output.
func readWindows(t *testing.T, dir string) (all []*pprof.Profile) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "out-*.pb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		all = append(all, readProfile(t, file))
	}
	if len(all) < 2 {
		t.Fatalf("got windows %q, want at least 2", files)
	}
	return all
}

// The windows together have the time asleep that the program counts, including sleeps
// that are divided between windows.
func TestSleepsInWindows(t *testing.T) {
	dir := t.TempDir()
	m := run(t, "sleeps", filepath.Join(dir, "out.pb.gz"), "profile", "--wall", "--interval", "0.1")
	var err error
	if m.profile, err = pprof.Merge(readWindows(t, dir)); err != nil {
		t.Fatal(err)
	}
	m.check(t, "off-cpu", "sleeper", m.truth.Slept, "[sleep]")
	if got := m.sum(t, "off-cpu", "", "[stack lost]"); got != 0 {
		t.Errorf("got %d ns without a stack, want 0\n%s", got, m.stderr)
	}
}

// A thread that sleeps all the time sleeps for the whole of each window, and each
// window has its stack, although the kernel side sent the stack only once.
func TestAsleepInEveryWindow(t *testing.T) {
	testenv.Root(t)
	sleeper := asleep(t)
	dir := t.TempDir()
	var least time.Duration
	report, took := during(t, func() {
		begin := time.Now()
		testenv.Await(t, func() bool {
			_, err := os.Stat(filepath.Join(dir, "out-0003.pb.gz"))
			return err == nil
		}, func() string { return "got no third window" })
		least = time.Since(begin)
	}, "profile", "--wall", "--interval", "0.2", "-o", filepath.Join(dir, "out.pb.gz"), "-p", strconv.Itoa(sleeper.Pid))
	var whole int64
	for i, p := range readWindows(t, dir) {
		m := measured{profile: p, stderr: report}
		where := whereAsleep(t, "fulgur/test/waiting.nap")
		if n := m.sum(t, "samples", "sleeper", "[sleep]", where); n != 1 {
			t.Errorf("window %d: got %d sleeps, want 1\n%s", i+1, n, p)
		}
		whole += m.sum(t, "wall", "sleeper", "[sleep]", where)
	}
	if whole < int64(least) || whole > int64(took) {
		t.Errorf("got %d ns in all windows, want %v to %v\n%s", whole, least, took, report)
	}
}
