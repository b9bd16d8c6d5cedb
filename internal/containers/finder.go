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
	owner profile.Owner
	found bool
	at    time.Time
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
func (f *Finder) Owner(paths ...string) profile.Owner {
	o := f.container(paths)
	for _, path := range paths {
		if o.Unit = unit(path); o.Unit != "" {
			break
		}
	}
	return o
}

// container returns the outermost container that a runtime knows.
func (f *Finder) container(paths []string) profile.Owner {
	asked := map[candidate]bool{}
	for _, path := range paths {
		for _, c := range candidates(path) {
			if asked[c] {
				continue
			}
			asked[c] = true
			if o, ok := f.find(c); ok {
				return o
			}
		}
	}
	return profile.Owner{}
}

// find looks up a candidate.
func (f *Finder) find(c candidate) (profile.Owner, bool) {
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
		return known.owner, known.found
	}
	if limit != nil {
		begin := time.Now()
		if limit.Left() == 0 {
			return profile.Owner{}, false // until there is time left
		}
		defer func() { limit.Spend(time.Since(begin)) }()
	}
	var a result
	for _, r := range runtimes {
		if a.owner, a.found = r.find(c); a.found {
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
	return a.owner, a.found
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
