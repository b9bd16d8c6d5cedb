package process

import (
	"os"
	"testing"
)

// A process that ran before the sideband was opened is read from /proc once, no matter how
// many children and grandchildren it has: each has its parent's mappings.
func TestForksAreNotRead(t *testing.T) {
	maps := mapsOf(t, os.Getpid())
	addr := maps[0].Start
	reads := 0
	table := NewTable(Options{Sync: func() { reads++ }})
	defer table.Close()
	const forks = 1000
	last := os.Getpid()
	for i := range forks {
		time := uint64(10 * (i + 1))
		parent, child := os.Getpid(), pidA+i
		if i%2 > 0 {
			parent = last
		}
		last = child
		table.Apply(fork(time, parent, child))
		if got, want := table.Resolve(child, addr, time+1), table.Resolve(os.Getpid(), addr, time+1); got != want || got.File == nil {
			t.Fatalf("child %d: got %v, want its parent's %v", i, got, want)
		}
		table.Apply(exit(time+5, child, child))
		table.Forget(time)
	}
	if reads != 1 {
		t.Errorf("got %d reads of /proc for %d forks, want 1", reads, forks)
	}
	if table.Gone() != 0 {
		t.Errorf("got %d unreadable processes, want 0", table.Gone())
	}
}
