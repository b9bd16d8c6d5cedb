package containers

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/files/budget"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
)

// realCgroup creates a cgroup, below a new parent, in the first mounted hierarchy that wanted
// accepts. It returns the cgroup's directory, its path in the hierarchy and its ID.
func realCgroup(t *testing.T, wanted func(hierarchy) bool, name string) (dir, path string, id uint64) {
	t.Helper()
	testenv.Root(t)
	mounted, err := procfs.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hierarchies(mounted) {
		if !wanted(h) {
			continue
		}
		parent, err := os.MkdirTemp(h.mountpoint, "fulgur-test-") //nolint:usetesting // a cgroup
		if err != nil {
			testenv.Skip(t, "needs cgroups to be writable: %v", err)
		}
		t.Cleanup(func() { _ = os.Remove(parent) })
		dir = filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // nothing left to remove in some tests
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		return dir, "/" + filepath.Base(parent) + "/" + name, info.Sys().(*syscall.Stat_t).Ino
	}
	testenv.Unsupported(t, "no such hierarchy of cgroups is mounted")
	return "", "", 0
}

func unified(h hierarchy) bool { return h.unified }

// process starts a process in a cgroup.
func process(t *testing.T, dir string) *os.Process {
	t.Helper()
	cmd := exec.Command("sh", "-c", `echo $$ > "$0"/cgroup.procs && echo && exec sleep 1000`, dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the process did not enter its cgroup: %v", err)
	}
	return cmd.Process
}

// newTestTracker returns a tracker for a machine with this machine's cgroups.
func newTestTracker(t *testing.T, m machine, mixed bool) *Tracker {
	t.Helper()
	mounted, err := procfs.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	tracker := newTracker(newFinder(m.places), NewCgroups(mounted), mixed)
	tracker.waits = budget.New(time.Hour, budgetShare) // the machine may be busy
	t.Cleanup(func() { _ = tracker.Close() })
	return tracker
}

// noProcess and anyEpoch are a process that does not exist, and the epoch of any program.
const (
	noProcess = 1 << 30
	anyEpoch  = 7
)

// TestTracker finds a real cgroup by its ID alone, because the process is gone.
func TestTracker(t *testing.T) {
	m := newMachine(t)
	m.write("var/lib/docker/containers/"+testID+"/config.v2.json", dockerFile(testID, "web", ""))
	_, _, id := realCgroup(t, unified, "docker-"+testID+".scope")
	tracker := newTestTracker(t, m, false)
	web := profile.Owner{ContainerID: testID, Container: "web", Image: "nginx:1.25", Runtime: "docker"}
	for range 2 {
		if got := tracker.Of(noProcess, anyEpoch, id, monotonic.Now()).Owner(); got != web {
			t.Errorf("got %+v, want %+v", got, web)
		}
	}
	if got := tracker.Of(noProcess, anyEpoch, 1<<40, monotonic.Now()).Owner(); got != (profile.Owner{Unknown: true}) {
		t.Errorf("got %+v for an unknown cgroup, want an unknown owner", got)
	}
	if got := tracker.Of(noProcess, anyEpoch, 0, monotonic.Now()).Owner(); got != (profile.Owner{Unknown: true}) {
		t.Errorf("got %+v without a cgroup, want an unknown owner", got)
	}
}

// TestTrackerCreated finds a cgroup that is gone by the time of its first sample.
func TestTrackerCreated(t *testing.T) {
	m := newMachine(t)
	config := m.write("var/lib/docker/containers/"+testID+"/config.v2.json", dockerFile(testID, "web", ""))
	dir, path, id := realCgroup(t, unified, testID)
	tracker := newTestTracker(t, m, false)
	tracker.Created(id, path)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	first := tracker.Of(noProcess, anyEpoch, id, monotonic.Now())
	web := profile.Owner{ContainerID: testID, Container: "web", Image: "nginx:1.25", Runtime: "docker"}
	if got := first.Owner(); got != web {
		t.Errorf("got %+v, want %+v", got, web)
	}
	if err := os.Remove(config); err != nil { // docker run --rm
		t.Fatal(err)
	}
	if got := tracker.Of(noProcess, anyEpoch, id, monotonic.Now()).Owner(); got != web {
		t.Errorf("got %+v without its file, want %+v", got, web)
	}
}

// TestTrackerLateFile finds a container whose runtime wrote its files late.
func TestTrackerLateFile(t *testing.T) {
	m := newMachine(t)
	_, _, id := realCgroup(t, unified, testID)
	tracker := newTestTracker(t, m, false)
	member := tracker.Of(noProcess, anyEpoch, id, monotonic.Now())
	if got := member.Owner(); got != (profile.Owner{}) {
		t.Errorf("got %+v, want no owner yet", got)
	}
	m.write("var/lib/docker/containers/"+testID+"/config.v2.json", dockerFile(testID, "web", ""))
	for c, a := range tracker.finder.known {
		a.at = a.at.Add(-2 * retryInterval)
		tracker.finder.known[c] = a
	}
	if got := member.Owner().Container; got != "web" {
		t.Errorf("got container %q, want web", got)
	}
}

// TestTrackerVersion1 finds the owner of a process by its version 1 cgroup, until the process
// is gone.
func TestTrackerVersion1(t *testing.T) {
	m := newMachine(t)
	m.write("var/lib/docker/containers/"+testID+"/config.v2.json", dockerFile(testID, "web", ""))
	dir, _, _ := realCgroup(t, func(h hierarchy) bool { return !h.unified && filepath.Base(h.mountpoint) == "pids" }, testID)
	tracker := newTestTracker(t, m, true)
	p := process(t, dir)
	web := profile.Owner{ContainerID: testID, Container: "web", Image: "nginx:1.25", Runtime: "docker"}
	if got := tracker.Of(p.Pid, anyEpoch, 1, monotonic.Now()).Owner(); got != web {
		t.Errorf("got %+v, want %+v", got, web)
	}
	_ = p.Kill()
	_, _ = p.Wait()
	if got := tracker.Of(p.Pid, anyEpoch, 1, monotonic.Now()).Owner(); got != web {
		t.Errorf("got %+v for a process that ended, want %+v", got, web)
	}
	// The version 2 cgroup of a process that is gone does not identify its owner.
	if got := tracker.Of(noProcess, anyEpoch, 1, monotonic.Now()).Owner(); got != (profile.Owner{Unknown: true}) {
		t.Errorf("got %+v for another one in the root of version 2, want an unknown owner", got)
	}
	if m, known := tracker.byProcess.get(programKey{noProcess, anyEpoch}); m != nil || !known {
		t.Errorf("got %v and %t, want the process that is gone to be remembered", m, known)
	}
	other := process(t, dir)
	if got := tracker.Of(other.Pid, anyEpoch, 1, monotonic.Now()/2).Owner(); got != (profile.Owner{Unknown: true}) {
		t.Errorf("got %+v for a process that ran before this one got its ID, want an unknown owner", got)
	}
}

// TestTrackerFull checks that lookups beyond the limit leave no trace.
func TestTrackerFull(t *testing.T) {
	m := newMachine(t)
	tracker := newTestTracker(t, m, false)
	begin, end := make(chan bool), make(chan bool)
	tracker.work <- func() { close(begin); <-end }
	testenv.Receive(t, begin, "no work is done")
	for len(tracker.work) < maxWaiting {
		tracker.work <- func() {}
	}
	if got := tracker.Of(noProcess, anyEpoch, 1<<40, monotonic.Now()); got != nil {
		t.Errorf("got %+v with %d look-ups waiting, want nil", got, maxWaiting)
	}
	// Owner waits only for a limited time.
	slow := &Membership{ready: make(chan struct{}), waits: budget.New(time.Millisecond, budgetShare)}
	if got := slow.Owner(); !got.Unknown {
		t.Errorf("got %+v from an unfinished lookup, want an unknown owner", got)
	}
	close(end)
	if got := (*Membership)(nil).Owner(); !got.Unknown {
		t.Errorf("got %+v, want an unknown owner", got)
	}
}

func TestGenerations(t *testing.T) {
	var g generations[int]
	kept := &Membership{}
	g.put(-1, kept)
	for i := range 3 * generation {
		g.put(i, &Membership{})
		if got, ok := g.get(-1); !ok || got != kept {
			t.Fatalf("after %d others: got %v, %v", i, got, ok)
		}
	}
	if _, ok := g.get(0); ok {
		t.Error("the first entry is still there, although it was not used")
	}
	if n := len(g.young) + len(g.old); n > 2*generation {
		t.Errorf("%d entries, want at most %d", n, 2*generation)
	}
}

// TestTrackerMixed checks that the version 2 cgroup of a process that is gone does not name a
// unit if the process may be in a version 1 container.
func TestTrackerMixed(t *testing.T) {
	m := newMachine(t)
	m.write("var/lib/docker/containers/"+testID+"/config.v2.json", dockerFile(testID, "web", ""))
	for mixed, want := range map[bool]profile.Owner{false: {Unit: "docker.service"}, true: {Unknown: true}} {
		tracker := newTestTracker(t, m, mixed)
		tracker.Created(99, "/system.slice/docker.service")
		if got := tracker.Of(noProcess, anyEpoch, 99, monotonic.Now()).Owner(); got != want {
			t.Errorf("mixed %v: got %+v, want %+v", mixed, got, want)
		}
		tracker.Created(100, "/system.slice/docker-"+testID+".scope")
		if got := tracker.Of(noProcess, anyEpoch, 100, monotonic.Now()).Owner().Container; got != "web" {
			t.Errorf("mixed %v: got container %q, want web", mixed, got)
		}
	}
}
