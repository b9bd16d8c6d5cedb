package containers

import (
	"sync"
	"time"

	"fulgur/internal/files/budget"
	"fulgur/internal/profile"
)

// Finder finds the owners of cgroups. It is safe for concurrent use.
type Finder struct {
	places *places

	mu       sync.Mutex
	runtimes map[int][]runtime    // by user
	budgets  map[int]*budget.Time // of users other than root
	known    map[candidate]result
}

// result is the result of looking up a candidate.
type result struct {
	container
	found bool
	at    time.Time
}

// container is a container in the files of a runtime.
type container struct {
	owner profile.Owner
	// labels has its labels, with those of its pod where the runtime's files have them, or the
	// annotations of its specification.
	labels map[string]string
}

// Place is where a process runs.
type Place struct {
	profile.Owner
	// Paths are the paths of its cgroups.
	Paths []string
	// Labels are those of its container. The image and the user choose them.
	Labels map[string]string
	// Doubtful means that no container was found, although the paths look as if there is one. Its
	// runtime may write its files later.
	Doubtful bool
}

// maxKnown limits the cached results. When it is reached, the cache is emptied.
const maxKnown = 1 << 12

// retryInterval is the minimum time between two lookups of a container without files or
// without a name. A runtime may write its files after the first process has started.
const retryInterval = 2 * time.Second

// userBudget limits the time for reading the files of a user, because the files may be long
// and their file system slow. In the long run, all budgets here are 1/budgetShare of the elapsed time.
const (
	userBudget  = 500 * time.Millisecond
	budgetShare = 10
)

// NewFinder returns a finder for the containers of this machine.
func NewFinder() *Finder { return newFinder(newPlaces()) }

func newFinder(p *places) *Finder {
	return &Finder{places: p, runtimes: map[int][]runtime{}, budgets: map[int]*budget.Time{}, known: map[candidate]result{}}
}

// Owner returns the owner of a process from the paths of its cgroups, the most relevant
// first.
func (f *Finder) Owner(paths ...string) profile.Owner { return f.Place(paths...).Owner }

// Place returns the place of a process from the paths of its cgroups, the most relevant first.
func (f *Finder) Place(paths ...string) Place {
	found, tried := f.container(paths)
	p := Place{Owner: found.owner, Paths: paths, Labels: found.labels, Doubtful: tried && found.owner.ContainerID == ""}
	for _, path := range paths {
		if p.Unit = unit(path); p.Unit != "" {
			break
		}
	}
	return p
}

// container returns the outermost container that a runtime knows, and whether any path may contain
// the ID of one.
func (f *Finder) container(paths []string) (_ container, tried bool) {
	asked := map[candidate]bool{}
	for _, path := range paths {
		for _, c := range candidates(path) {
			if asked[c] {
				continue
			}
			asked[c] = true
			if found, ok := f.find(c); ok {
				return found, true
			}
		}
	}
	return container{}, len(asked) > 0
}

// find looks up a candidate.
func (f *Finder) find(c candidate) (container, bool) {
	f.mu.Lock()
	known, ok := f.known[c]
	runtimes, limit := f.runtimes[c.uid], f.budgets[c.uid]
	if runtimes == nil {
		runtimes = newRuntimes(f.places, c.uid)
		f.runtimes[c.uid] = runtimes
		if c.uid != 0 {
			limit = budget.New(userBudget, budgetShare)
			f.budgets[c.uid] = limit
		}
	}
	f.mu.Unlock()
	if ok && (known.owner.Container != "" || time.Since(known.at) < retryInterval) {
		return known.container, known.found
	}
	if limit != nil {
		begin := time.Now()
		if limit.Left() == 0 {
			return container{}, false // until there is time left
		}
		defer func() { limit.Spend(time.Since(begin)) }()
	}
	var a result
	for _, r := range runtimes {
		if a.container, a.found = r.find(c); a.found {
			f.complete(c, &a.owner)
			break
		}
	}
	a.at = time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.known) >= maxKnown {
		clear(f.known)
	}
	f.known[c] = a
	return a.container, a.found
}

// complete fills in the pod of a container that the kubelet started, if the runtime's files
// lack it.
func (f *Finder) complete(c candidate, o *profile.Owner) {
	uid := podUID(c.path)
	if uid == "" || c.uid != 0 {
		return
	}
	if o.Pod == "" {
		kubelet(state{}, f.places.below(containerLogs), o)
	}
	if o.PodUID == "" {
		o.PodUID = uid
	}
}
