package containers

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/budget"
	"fulgur/internal/linux/monotonic"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
)

// Tracker finds the owners of processes while they run. A goroutine reads the files of
// runtimes at once, so that even a short-lived container gets its names; the methods do not
// wait for it. Tracker is not safe for concurrent use.
//
// The owner comes from the process's version 2 cgroup. On a machine that also has version 1
// hierarchies, containers may have no version 2 cgroup, so Tracker also reads
// /proc/PID/cgroup, once for each program that a process executes.
type Tracker struct {
	finder  *Finder
	cgroups *Cgroups // used only by the goroutine
	// mixed is whether there are version 1 hierarchies.
	mixed bool

	byID      generations[uint64]
	byPath    generations[string]
	byProcess generations[programKey]
	work      chan func()
	working   sync.WaitGroup
	waits     *budget.Time // for callers of [Membership.Owner]
}

// programKey identifies a program that a process executes.
type programKey struct {
	pid   int
	epoch uint64
}

// Membership is the owner of a process, whose lookup may not have finished yet. It is safe
// for concurrent use.
type Membership struct {
	ready chan struct{}
	find  func() Place
	waits *budget.Time
	// tentative means that the owner is certain only if it is a container.
	tentative bool
	// since is when it was first asked for.
	since time.Time

	mu    sync.Mutex
	place Place
}

// Owner returns the owner. It waits a few seconds at most until the owner is known; after
// that, and for a nil Membership, it returns an unknown owner. If no container was found,
// Owner looks again, because the runtime may have written its files late.
func (m *Membership) Owner() profile.Owner { return m.Place().Owner }

// unknown is a place of which nothing is known.
var unknown = Place{Owner: profile.Owner{Unknown: true}}

// Place returns the place whose owner [Membership.Owner] returns.
func (m *Membership) Place() Place {
	if m == nil || !m.await() {
		return unknown
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.place.ContainerID == "" && !m.place.Unknown {
		m.place = m.find()
	}
	if m.tentative && m.place.ContainerID == "" {
		return unknown
	}
	if time.Since(m.since) > maxDoubt {
		m.place.Doubtful = false
	}
	return m.place
}

// maxDoubt is the time that a runtime may take to write the files of a container that has processes.
const maxDoubt = 10 * time.Second

// Ready reports whether [Membership.Place] does not wait.
func (m *Membership) Ready() bool {
	select {
	case <-m.ready:
		return true
	default:
		return false
	}
}

// await waits until the owner has been looked up. It returns false if that takes too long.
func (m *Membership) await() bool {
	if m.Ready() {
		return true
	}
	begin := time.Now()
	timer := time.NewTimer(m.waits.Left())
	defer timer.Stop()
	defer func() { m.waits.Spend(time.Since(begin)) }()
	select {
	case <-m.ready:
		return true
	case <-timer.C:
		return false
	}
}

// maxWaits is the burst of the [budget.Time] that callers of [Membership.Owner] wait.
const maxWaits = 5 * time.Second

// maxWaiting limits the queued lookups. Other cgroups are looked up with their next sample.
const maxWaiting = 1 << 12

// NewTracker returns a tracker for the processes of this machine. The caller must close
// it.
func NewTracker() (*Tracker, error) {
	mounted, err := procfs.Mounts()
	if err != nil {
		return nil, err
	}
	own, err := procfs.Self.Memberships()
	if err != nil {
		return nil, err
	}
	mixed := slices.ContainsFunc(own, func(m procfs.Membership) bool { return m.Hierarchy != 0 })
	return newTracker(NewFinder(), NewCgroups(mounted), mixed), nil
}

func newTracker(f *Finder, c *Cgroups, mixed bool) *Tracker {
	t := &Tracker{finder: f, cgroups: c, mixed: mixed, work: make(chan func(), maxWaiting), waits: budget.New(maxWaits, budgetShare)}
	t.working.Go(func() {
		for do := range t.work {
			do()
		}
	})
	return t
}

// Close ends the lookups. It does nothing for a nil Tracker.
func (t *Tracker) Close() error {
	if t != nil && t.work != nil {
		close(t.work)
		t.working.Wait()
		t.work = nil
	}
	return nil
}

// Created records the path of a new cgroup, which may be gone by the time of its first
// sample. If the cgroup may be a container's, its names are looked up at once. Created returns the
// membership of its processes, nil if too many lookups are queued.
func (t *Tracker) Created(id uint64, path string) *Membership {
	if id == 0 {
		return nil
	}
	var m *Membership
	if t.mixed {
		m = t.lookUp(func() Place { return t.finder.Place(path) })
	} else {
		m = t.ofPaths([]string{path})
	}
	if m != nil {
		t.byID.put(id, t.unconfirmed(m))
	}
	return m
}

// PlaceOf returns the place of a process with these cgroups. It may be called while others use t.
func (t *Tracker) PlaceOf(all []procfs.Membership) Place {
	return t.finder.Place(distinctPaths(all)...)
}

// Mixed reports whether there are version 1 hierarchies, so that the version 2 cgroup of a process
// does not tell its owner.
func (t *Tracker) Mixed() bool { return t.mixed }

// unconfirmed marks m, the membership of a version 2 cgroup, as tentative on a machine with
// version 1 hierarchies. There, the version 2 cgroup of a process in a container may belong
// to something else, such as the service of the container's daemon.
func (t *Tracker) unconfirmed(m *Membership) *Membership {
	m.tentative = t.mixed
	return m
}

// Of returns the membership of a process at a time in ns (CLOCK_MONOTONIC). cgroup is the ID
// of its version 2 cgroup, 0 if that is unknown, and epoch identifies the program that it executes.
func (t *Tracker) Of(pid int, epoch, cgroup, at uint64) *Membership {
	if t.mixed || cgroup == 0 {
		if m := t.ofProcess(pid, epoch, at); m != nil {
			return m
		}
	}
	if cgroup == 0 {
		return nil
	}
	if m, ok := t.byID.get(cgroup); ok {
		return m
	}
	path := ""
	m := t.lookUp(func() Place {
		if path == "" {
			path = t.cgroups.Name(cgroup) // while the cgroup exists
		}
		if path == "" {
			return unknown
		}
		return t.finder.Place(path)
	})
	if m != nil {
		t.byID.put(cgroup, t.unconfirmed(m))
	}
	return m
}

// ofProcess returns the membership of a process that ran at a given time, from
// /proc/PID/cgroup, or nil if the process is gone.
func (t *Tracker) ofProcess(pid int, epoch, at uint64) *Membership {
	key := programKey{pid, epoch}
	if m, ok := t.byProcess.get(key); ok {
		return m
	}
	all, err := procfs.Process(pid).Memberships()
	later := false
	if err == nil {
		later, err = startedAfter(pid, at)
	}
	if later || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		t.byProcess.put(key, nil) // it does not come back
	}
	if later || err != nil {
		return nil
	}
	m := t.ofPaths(distinctPaths(all))
	if m != nil {
		t.byProcess.put(key, m)
	}
	return m
}

// startedAfter reports whether a process started after a time in ns (CLOCK_MONOTONIC). At that
// time, another process had its ID.
func startedAfter(pid int, at uint64) (bool, error) {
	age, err := procfs.Process(pid).Age()
	now := monotonic.Now()
	return at < now && age+procfs.Tick < time.Duration(now-at), err
}

// distinctPaths returns the distinct paths of a process's cgroups, beginning with the version
// 2 hierarchy and systemd's.
func distinctPaths(all []procfs.Membership) (paths []string) {
	for _, wanted := range []func(procfs.Membership) bool{
		func(m procfs.Membership) bool { return m.Hierarchy == 0 },
		func(m procfs.Membership) bool { return m.Controllers == "name=systemd" },
		func(procfs.Membership) bool { return true },
	} {
		for _, m := range all {
			if wanted(m) && m.Path != "/" {
				paths = addNew(paths, m.Path)
			}
		}
	}
	return paths
}

// ofPaths returns the membership of a process with cgroups at paths.
func (t *Tracker) ofPaths(paths []string) *Membership {
	key := ""
	for _, path := range paths {
		key += path + "\n"
	}
	if m, ok := t.byPath.get(key); ok {
		return m
	}
	m := t.lookUp(func() Place { return t.finder.Place(paths...) })
	if m != nil {
		t.byPath.put(key, m)
	}
	return m
}

// lookUp makes the goroutine call find. It returns nil if too many lookups are queued.
func (t *Tracker) lookUp(find func() Place) *Membership {
	m := &Membership{ready: make(chan struct{}), find: find, waits: t.waits, since: time.Now()}
	select {
	case t.work <- func() { m.place = find(); close(m.ready) }:
		return m
	default:
		return nil
	}
}

// generation is the maximum number of memberships in a generation.
const generation = 1 << 13

// generations is a cache of the memberships that were used in the current generation or the
// one before. Its size is bounded.
type generations[K comparable] struct{ young, old map[K]*Membership }

func (g *generations[K]) get(key K) (*Membership, bool) {
	if m, ok := g.young[key]; ok {
		return m, true
	}
	m, ok := g.old[key]
	if ok {
		g.put(key, m)
	}
	return m, ok
}

func (g *generations[K]) put(key K, m *Membership) {
	if g.young == nil || len(g.young) >= generation {
		g.young, g.old = map[K]*Membership{}, g.young
	}
	g.young[key] = m
}
