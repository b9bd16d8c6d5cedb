package perfevent

import (
	"slices"
	"testing"
)

// cpuRange returns n CPUs with gaps between them.
func cpuRange(n int) (cpus []int) {
	for i := range n {
		cpus = append(cpus, 2*i)
	}
	return cpus
}

// The number of events that a search reads does not grow with the CPUs, and each CPU has its
// turn.
func TestStallsTurns(t *testing.T) {
	for _, n := range []int{0, 1, 2, stallsAtOnce, stallsAtOnce + 1, 250, 256, 1024} {
		var s Stalls
		cpus, looked := cpuRange(n), map[int]int{}
		rounds := (n + stallsAtOnce - 1) / stallsAtOnce
		for range rounds {
			reads := 0
			s.Find(cpus, func(cpu int) bool { reads++; looked[cpu]++; return false })
			if reads > stallsAtOnce {
				t.Errorf("%d CPUs: a search reads %d events, want at most %d", n, reads, stallsAtOnce)
			}
		}
		if len(looked) != n {
			t.Errorf("%d CPUs: %d of them had their turn in %d searches, want all", n, len(looked), rounds)
		}
	}
}

// CPUs that went offline and came back are found. If there were many, as after a suspend, the
// others are found soon after the first.
func TestStallsFound(t *testing.T) {
	const n = 256
	var s Stalls
	cpus := cpuRange(n)
	looks, stalled := map[int]int{}, map[int]bool{}
	// As Event.Stalled: known at the second look.
	look := func(cpu int) bool {
		looks[cpu]++
		return stalled[cpu] && looks[cpu] > 1
	}
	search := func() {
		for _, cpu := range s.Find(cpus, look) {
			delete(stalled, cpu)
			delete(looks, cpu)
		}
	}
	for _, cpu := range cpus[1:] {
		stalled[cpu] = true
	}
	searches := 0
	for ; len(stalled) == n-1; searches++ {
		search()
	}
	if limit := n/stallsAtOnce + 1; searches > limit {
		t.Errorf("the first CPU was found after %d searches, want %d at most", searches, limit)
	}
	search()
	search()
	if len(stalled) > 0 {
		t.Errorf("%d CPUs were not found by the next two searches, want none", len(stalled))
	}
	// Afterwards, a search looks at a few again.
	clear(looks)
	search()
	if len(looks) != stallsAtOnce {
		t.Errorf("a search looks at %d CPUs, want %d", len(looks), stallsAtOnce)
	}
}

// CPUs come and go between the searches.
func TestStallsHotplug(t *testing.T) {
	var s Stalls
	cpus := cpuRange(64)
	none := func(int) bool { return false }
	for i := range cpus {
		s.Find(cpus[:i], none)
	}
	s.Find(cpus, none)
	if got := s.Find([]int{0, 2}, func(cpu int) bool { return cpu == 2 }); !slices.Equal(got, []int{2}) {
		t.Errorf("got %v, want 2", got)
	}
}
