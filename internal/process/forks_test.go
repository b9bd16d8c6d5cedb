package process

import (
	"os"
	"testing"
)

// A process from before anyone listened is read from /proc once, however many
// children it forks and grandchildren they do: each has what it had.
func TestForksAreNotRead(t *testing.T) {
	maps, err := readMaps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
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
		t.Errorf("/proc was read %d times for %d forks, want once", reads, forks)
	}
	if table.Gone() != 0 {
		t.Errorf("%d processes could not be read", table.Gone())
	}
}
