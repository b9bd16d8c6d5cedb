package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fulgur/internal/branches"
	"fulgur/internal/capture/target"
	"fulgur/internal/export/otlpclient"
	"fulgur/internal/testenv"
)

const buildID = "0123456789abcdef"

// TestPlan checks that windows are in their period, do not overlap, and are at random times.
func TestPlan(t *testing.T) {
	o := Bolt{Programs: []string{"/a", "/b", "/c"}, Every: 100 * time.Second, Window: 20 * time.Second}
	random := rand.New(rand.NewPCG(1, 2)) // the same in each run
	starts, orders := map[time.Duration]bool{}, map[string]bool{}
	for range 200 {
		windows := plan(o, random.Int64N)
		var order []string
		free := time.Duration(0)
		for _, w := range windows {
			if w.after < free || w.after+o.Window > o.Every {
				t.Fatalf("got %+v, with windows that overlap or are outside of the period", windows)
			}
			free = w.after + o.Window
			order = append(order, w.program)
			starts[w.after] = true
		}
		if !slices.Equal(slices.Sorted(slices.Values(order)), o.Programs) {
			t.Fatalf("got %+v, want each program once", windows)
		}
		orders[strings.Join(order, "")] = true
	}
	if len(orders) != 6 || len(starts) < 500 {
		t.Errorf("got %d orders, %d times, want 6 and different times", len(orders), len(starts))
	}
	o.Every = 60 * time.Second // no time between them
	for i, w := range plan(o, random.Int64N) {
		if w.after != time.Duration(i)*o.Window {
			t.Errorf("window %d begins after %v", i, w.after)
		}
	}
}

// TestRoots checks which processes are chosen.
func TestRoots(t *testing.T) {
	parents := map[int]int{10: 1, 11: 10, 12: 11, 20: 2, 21: 20, 30: 10}
	parent := func(pid int) int { return parents[pid] }
	got := map[string]int{}
	for range 100 {
		pids := roots(map[int]int{10: 0, 11: 0, 12: 0, 20: 0, 21: 0, 30: 1}, parent)
		slices.Sort(pids)
		got[fmt.Sprint(pids)]++
	}
	if want := []string{"[10 20]", "[30]"}; !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
		t.Errorf("got %v, want %v", got, want)
	}
	many := map[int]int{}
	for pid := range 100 {
		many[1000+pid] = 0
	}
	if pids := roots(many, func(int) int { return 1 }); len(pids) != maxRoots {
		t.Errorf("got %d processes, want %d", len(pids), maxRoots)
	}
}

// TestRunning finds a process by its program, also when the file has gone.
func TestRunning(t *testing.T) {
	if pids, err := running("/no/such/program"); !errors.Is(err, errIdle) {
		t.Errorf("got %v, %v, want none", pids, err)
	}
	program := sleeper(t)
	for range 2 {
		if pids, err := running(program); len(pids) != 1 || err != nil {
			t.Errorf("got %v, %v, want one process", pids, err)
		}
		_ = os.Remove(program)
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if pids, err := running(self); slices.Contains(pids, os.Getpid()) {
		t.Errorf("got %v, %v, with fulgur itself", pids, err)
	}
}

// collected returns the profile of a window with one line.
func collected(t *testing.T, d boltDir, id, line string) branches.Collected {
	t.Helper()
	if err := os.WriteFile(d.window(), []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	return branches.Collected{Name: "/x/server", BuildID: id, Profile: d.window(), Samples: 1}
}

// contents returns the files of a directory.
func contents(t *testing.T, d boltDir) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(d.path, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(b)
	}
	return all
}

// TestBoltDir adds windows up: a file for each build and day.
func TestBoltDir(t *testing.T) {
	d := boltDir{filepath.Join(t.TempDir(), "new"), 1 << 20}
	if err := d.open(); err != nil {
		t.Fatal(err)
	}
	evening := time.Date(2026, 11, 24, 1, 30, 0, 0, time.FixedZone("", 2*60*60)) // 23:30 UTC
	night := evening.Add(time.Hour)
	other := strings.Repeat("f", 128) // a build ID can have any length
	for i, window := range []struct {
		id, line string
		at       time.Time
		fresh    bool
	}{
		{buildID, "T 10 20 30 5\n", evening, true},
		{buildID, "T 10 20 30 2\n", evening, false},
		{buildID, "T 11 20 30 1\n", evening, false},
		{other, "T 10 20 30 9\n", evening, true},
		{buildID, "T 10 20 30 4\n", night, true},
	} {
		_, fresh, removed, err := d.add(t.Context(), collected(t, d, window.id, window.line), window.at)
		if err != nil || fresh != window.fresh || removed != 0 {
			t.Errorf("window %d: got new %v, %d removed, %v", i, fresh, removed, err)
		}
	}
	want := map[string]string{
		"server.2026-11-23." + buildID + ".preagg": "T 10 20 30 7\nT 11 20 30 1\n",
		"server.2026-11-23." + other + ".preagg":   "T 10 20 30 9\n",
		"server.2026-11-24." + buildID + ".preagg": "T 10 20 30 4\n",
	}
	if got := contents(t, d); !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	// The oldest profiles make room, but not the one just written.
	if names, size, err := d.files(); len(names) != 3 || size != 52 || err != nil {
		t.Errorf("got %v, %d bytes, %v", names, size, err)
	}
	d.limit = 40
	if _, _, removed, err := d.add(t.Context(), collected(t, d, buildID, "T 10 20 30 3\n"), evening); err != nil || removed != 1 {
		t.Errorf("got %d removed, %v, want 1", removed, err)
	}
	delete(want, "server.2026-11-23."+other+".preagg")
	want["server.2026-11-23."+buildID+".preagg"] = "T 10 20 30 10\nT 11 20 30 1\n"
	if got := contents(t, d); !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// A day's profile that would be too large stays as it is.
	d.limit = 30
	if _, _, _, err := d.add(t.Context(), collected(t, d, buildID, "T 12 20 30 1\n"), evening); !errors.Is(err, errFull) {
		t.Errorf("got %v, want %v", err, errFull)
	}
	if got := contents(t, d); !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestBoltDirDamage checks that damaged files neither prevent new profiles nor leave
// incomplete ones.
func TestBoltDirDamage(t *testing.T) {
	d := boltDir{t.TempDir(), 1 << 20}
	day := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	name := "server.2026-11-23." + buildID + ".preagg"
	if err := os.WriteFile(filepath.Join(d.path, name), []byte("no profile\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, fresh, _, err := d.add(t.Context(), collected(t, d, buildID, "T 10 20 30 1\n"), day); err != nil || !fresh {
		t.Errorf("got new %v, %v", fresh, err)
	}
	want := map[string]string{name: "T 10 20 30 1\n", name + ".corrupt": "no profile\n"}
	if got := contents(t, d); !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, _, _, err := d.add(t.Context(), collected(t, d, buildID, "no profile either\n"), day.Add(24*time.Hour)); err == nil {
		t.Error("got no error for a window that cannot be read")
	}
	if _, _, _, err := d.add(t.Context(), collected(t, d, "", "T 1 2 3 4\n"), day); err == nil || !strings.Contains(err.Error(), "has no build ID") {
		t.Errorf("got %v for a program without a build ID", err)
	}
	for _, left := range []string{d.window(), filepath.Join(d.path, name+".new")} { // by a run that was killed
		if err := os.WriteFile(left, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.clear(); err != nil {
		t.Error(err)
	}
	if got := contents(t, d); !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// The damaged file is the first to be removed to make room.
	d.limit = 15
	if _, err := d.makeRoom(""); err != nil {
		t.Error(err)
	}
	delete(want, name+".corrupt")
	if got := contents(t, d); !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.Chmod(d.path, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := d.open(); err == nil || !strings.Contains(err.Error(), "remove the permissions 022") {
		t.Errorf("got %v for a directory that others can change", err)
	}
}

// TestBolter takes windows of a running program, and counts those that fail.
func TestBolter(t *testing.T) {
	a, _ := idle(t)
	program := sleeper(t)
	d := boltDir{filepath.Join(t.TempDir(), "new"), 1 << 20} // with fulgur's own mode, whatever the umask is
	o := Bolt{Programs: []string{program, "/no/such/program"}, Dir: d.path, DirSize: d.limit, Every: time.Hour, Window: time.Second}
	a.inUse.Store(&Options{Bolt: o})
	var messages []string
	b := a.bolter
	b.warn = func(text string) { messages = append(messages, text) }
	results := []error{nil, errors.New("broken"), errors.New("broken"), nil}
	b.collect = func(_ context.Context, o branches.Options) (branches.Collected, error) {
		err := results[0]
		results = results[1:]
		if o.Target.Scope != target.Processes || len(o.Target.PIDs) != 1 || !o.Target.Children || o.Duration != time.Second {
			t.Errorf("got the options %+v", o)
		}
		if err != nil {
			return branches.Collected{}, err
		}
		c := collected(t, d, buildID, "T 10 20 30 1\n")
		c.LongestStall = 3 * time.Millisecond
		return c, nil
	}
	for _, p := range []string{program, program, program, "/no/such/program", program} {
		b.window(t.Context(), o, p)
	}
	if len(messages) != 2 || !strings.HasPrefix(messages[0], "branch profile: "+d.path) || !strings.HasSuffix(messages[1], ": broken") {
		t.Errorf("got the messages %q, want one for each kind", messages)
	}
	for _, want := range []string{
		`fulgur_bolt_windows_total{result="added"} 2`, `fulgur_bolt_windows_total{result="failed"} 2`, `fulgur_bolt_windows_total{result="idle"} 1`,
		"fulgur_bolt_samples_total 2", "fulgur_bolt_files 1", "fulgur_bolt_bytes 13", "fulgur_bolt_longest_stall_seconds 0.003",
	} {
		if text := a.metrics(); !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("got no %q in\n%s", want, text)
		}
	}
}

// TestBolterReload takes windows by the configuration in use.
func TestBolterReload(t *testing.T) {
	a, r := idle(t)
	o := Bolt{Programs: []string{sleeper(t)}, Dir: filepath.Join(t.TempDir(), "new"), DirSize: 1 << 20, Every: time.Millisecond}
	backEnd, err := otlpclient.Configure(r.HTTP(), "", func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	a.inUse.Store(&Options{BackEnd: backEnd}) // none yet
	windows := make(chan string)
	a.bolter.collect = func(ctx context.Context, o branches.Options) (branches.Collected, error) {
		select {
		case windows <- filepath.Dir(o.Output):
		case <-ctx.Done():
		}
		return branches.Collected{}, nil
	}
	end := a.startBolter(t.Context())
	defer end()
	a.apply(Options{BackEnd: backEnd, Bolt: o})
	if got := testenv.Receive(t, windows, "no window"); got != o.Dir {
		t.Errorf("got a window in %s, want %s", got, o.Dir)
	}
	// A window of the first configuration may already have begun. The next configuration has
	// no window soon.
	o.Every = time.Hour
	a.apply(Options{BackEnd: backEnd, Bolt: o})
	before := o.Dir
	o.Dir, o.Every = filepath.Join(t.TempDir(), "new"), time.Millisecond
	a.apply(Options{BackEnd: backEnd, Bolt: o})
	got := testenv.Receive(t, windows, "no window after a change")
	if got == before {
		got = testenv.Receive(t, windows, "no window in the new folder")
	}
	if got != o.Dir {
		t.Errorf("got a window in %s, want %s", got, o.Dir)
	}
}

// sleeper starts a program of its own that sleeps, and returns its path.
func sleeper(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(testenv.Tool(t, "sleep"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sleep")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return path
}
