package process

import (
	"sync"

	"fulgur/internal/linux/procfs"
)

// maxLate is the maximum number of late answers to keep. Each belongs to a process that
// is about to be asked about again.
const maxLate = 64

// lateMaps keeps mappings from /proc that arrived too late. On a busy machine, listing
// many mappings may exceed the table's time limit every time.
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
