package perfevent

import "slices"

// Stalls searches the events of many CPUs for those that have stalled; see [Event.Stalled].
// The zero value is ready for use.
//
// To read an event of another CPU, the kernel interrupts that CPU and waits for its answer,
// which takes long if the CPU sleeps. Reading one event of each of hundreds of CPUs every second
// would take some percent of a CPU, and wake all of them up. So each search looks at a few CPUs,
// in turn.
type Stalls struct {
	last int // CPU at which the last search ended
	all  int // remaining searches that look at all CPUs
}

// stallsAtOnce is the number of CPUs that a search looks at. With N CPUs, each has its turn every
// N/stallsAtOnce searches.
const stallsAtOnce = 8

// Find returns the CPUs of the sorted list for which stalled returns true. It calls
// stalled for a few CPUs only.
//
// After it has found one, the next two searches look at all CPUs: after a suspend, all CPUs but the
// first were offline, and an event counts as stalled only at the second look.
func (s *Stalls) Find(cpus []int, stalled func(cpu int) bool) []int {
	var found []int
	everywhere := s.all > 0
	for _, cpu := range s.turn(cpus) {
		if stalled(cpu) {
			found = append(found, cpu)
		}
	}
	if len(found) > 0 && !everywhere {
		s.all = 2
	}
	return found
}

// turn returns the CPUs to look at now.
func (s *Stalls) turn(cpus []int) []int {
	if s.all > 0 {
		s.all--
		return cpus
	}
	if len(cpus) <= stallsAtOnce {
		return cpus
	}
	first, _ := slices.BinarySearch(cpus, s.last+1)
	turn := make([]int, 0, stallsAtOnce)
	for i := range stallsAtOnce {
		turn = append(turn, cpus[(first+i)%len(cpus)])
	}
	s.last = turn[len(turn)-1]
	return turn
}
