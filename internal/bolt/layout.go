package bolt

import (
	"cmp"
	"slices"
)

// Region is a part of a process's address space that maps a binary's code. [Binary.Region]
// returns it.
type Region struct {
	// Start is the region's first address, and End one past the last.
	Start, End uint64
	// Binary is the file mapped there.
	Binary *Binary

	bias uint64 // address in memory minus link-time address
}

// Address returns the link-time address of addr.
func (r Region) Address(addr uint64) uint64 { return addr - r.bias }

// overlaps reports whether r and o share an address.
func (r Region) overlaps(o Region) bool { return r.Start < o.End && o.Start < r.End }

// Layout holds the regions of a process, sorted by address and without overlaps. The zero
// value is for a process that maps no binary.
type Layout []Region

// With returns the layout after r was mapped in place of overlapping regions, and whether it
// replaced any. If it replaced none, it may overwrite l.
func (l Layout) With(r Region) (after Layout, replaced bool) {
	i, _ := slices.BinarySearchFunc(l, r.Start, func(have Region, start uint64) int {
		return cmp.Compare(have.End, start+1)
	})
	j := i
	for j < len(l) && l[j].overlaps(r) {
		j++
	}
	if i == j {
		return slices.Insert(l, i, r), false
	}
	if j == i+1 && l[i] == r {
		return l, false // mapped again at the same place
	}
	return slices.Concat(l[:i], Layout{r}, l[j:]), true
}

// Find returns the region that contains addr.
func (l Layout) Find(addr uint64) (Region, bool) {
	if r := l.find(addr, nil); r != nil {
		return *r, true
	}
	return Region{}, false
}

// find returns the region that contains addr, or nil. It tries hint first.
func (l Layout) find(addr uint64, hint *Region) *Region {
	if hint != nil && addr >= hint.Start && addr < hint.End {
		return hint
	}
	lo, hi := 0, len(l)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if l[mid].End <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(l) && l[lo].Start <= addr {
		return &l[lo]
	}
	return nil
}
