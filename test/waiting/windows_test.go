package waiting

import (
	"os/exec"
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
	testenv.EveryKernel(t)
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
	begin := time.Now()
	report, err := exec.Command(program(t), "profile", "--wall", "--interval", "0.2", "-o", filepath.Join(dir, "out.pb.gz"),
		"-p", strconv.Itoa(sleeper.Pid), "1.1").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, report)
	}
	took := time.Since(begin)
	var whole int64
	for i, p := range readWindows(t, dir) {
		m := measured{profile: p, stderr: string(report)}
		where := whereAsleep(t, "fulgur/test/waiting.nap")
		if n := m.sum(t, "samples", "sleeper", "[sleep]", where); n != 1 {
			t.Errorf("window %d: got %d sleeps, want 1\n%s", i+1, n, p)
		}
		whole += m.sum(t, "wall", "sleeper", "[sleep]", where)
	}
	// The time begins before fulgur reads the threads, which takes longer on a busy
	// machine.
	if whole < int64(800*time.Millisecond) || whole > int64(took) {
		t.Errorf("got %d ns in all windows, want 1.1 s, at most %v\n%s", whole, took, report)
	}
}
