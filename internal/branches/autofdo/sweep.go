package autofdo

import (
	"maps"
	"math"
	"slices"
)

// sweep counts how often each instruction was executed, in ascending order of addresses.
type sweep struct {
	begins, ends         map[uint64]uint64
	beginAddrs, endAddrs []uint64
	active               uint64
}

func newSweep(begins, ends map[uint64]uint64) *sweep {
	return &sweep{
		begins: begins, ends: ends,
		beginAddrs: slices.Sorted(maps.Keys(begins)), endAddrs: slices.Sorted(maps.Keys(ends)),
	}
}

// at returns the number of times that straight-line code covered addr. Addresses must ascend.
func (s *sweep) at(addr uint64) uint64 {
	for len(s.beginAddrs) > 0 && s.beginAddrs[0] <= addr {
		s.active += s.begins[s.beginAddrs[0]]
		s.beginAddrs = s.beginAddrs[1:]
	}
	for len(s.endAddrs) > 0 && s.endAddrs[0] < addr {
		s.active -= s.ends[s.endAddrs[0]]
		s.endAddrs = s.endAddrs[1:]
	}
	return s.active
}

// next returns the next address where straight-line code begins, or the highest address.
func (s *sweep) next() uint64 {
	if len(s.beginAddrs) > 0 {
		return s.beginAddrs[0]
	}
	return math.MaxUint64
}
