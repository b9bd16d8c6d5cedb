package process

import (
	"sync"

	"fulgur/internal/linux/procfs"
)

// maxLate limits the late results kept. Each is for a process that is about to be looked up
// again.
const maxLate = 64

// lateMaps keeps mappings from /proc that arrived after the time limit, for the next lookup.
// On a busy machine, a long list of mappings may exceed the limit every time.
type lateMaps struct {
	mu   sync.Mutex
	maps map[*base][]procfs.Map
}

// put stores the mappings of a base.
func (l *lateMaps) put(b *base, maps []procfs.Map) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.maps == nil || len(l.maps) >= maxLate {
		l.maps = map[*base][]procfs.Map{}
	}
	l.maps[b] = maps
}

// take removes and returns the mappings of a base.
func (l *lateMaps) take(b *base) (maps []procfs.Map, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps, ok = l.maps[b]
	delete(l.maps, b)
	return maps, ok
}
