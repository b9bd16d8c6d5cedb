package unwindmap

import "testing"

// There is room for twice the running processes, within limits.
func TestSizesFor(t *testing.T) {
	for running, want := range map[int]uint32{0: 1 << 13, 4096: 1 << 13, 4097: 1 << 14, 9000: 1 << 15, 1 << 16: 1 << 17, 1 << 22: 1 << 17} {
		s := sizesFor(running)
		if s.processes != want {
			t.Errorf("%d processes: got room for %d, want %d", running, s.processes, want)
		}
		if s.processes = systemSizes.processes; s != systemSizes {
			t.Errorf("%d processes: got other sizes %+v, want %+v", running, s, systemSizes)
		}
	}
}
