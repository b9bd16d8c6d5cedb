package process

import "sync"

// maxLate is how many late answers are kept: each is of a process that is about
// to be asked for again.
const maxLate = 64

// lateMaps keeps what /proc said of processes too late. A machine that is busy may
// take longer to list many mappings than the table waits, each time.
type lateMaps struct {
	mu   sync.Mutex
	maps map[*base][]Map
}

// put keeps the mappings of a base.
func (l *lateMaps) put(b *base, maps []Map) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.maps == nil || len(l.maps) >= maxLate {
		l.maps = map[*base][]Map{}
	}
	l.maps[b] = maps
}

// take returns those that were kept for a base, and keeps them no longer.
func (l *lateMaps) take(b *base) (maps []Map, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps, ok = l.maps[b]
	delete(l.maps, b)
	return maps, ok
}
