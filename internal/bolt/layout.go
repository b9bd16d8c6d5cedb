package bolt

import (
	"cmp"
	"slices"
)

// Region is a part of a process's memory that shows a binary's code, as
// [Binary.Region] makes it.
type Region struct {
	// Start is the region's first address, End the one after its last.
	Start, End uint64
	// Binary is the file mapped there.
	Binary *Binary

	bias uint64 // address in memory less link-time address
}

// Address returns the link-time address that stands at addr in memory.
func (r Region) Address(addr uint64) uint64 { return addr - r.bias }

// overlaps reports whether r and o share an address.
func (r Region) overlaps(o Region) bool { return r.Start < o.End && o.Start < r.End }

// Layout is where a process has mapped which binaries: regions sorted by
// address that do not overlap. The zero value is a process that maps none.
type Layout []Region

// With returns the layout after r was mapped, which replaces what it overlaps,
// and whether anything was replaced. The layout itself may be overwritten if
// nothing was.
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

// Find returns the region that holds addr.
func (l Layout) Find(addr uint64) (Region, bool) {
	if r := l.find(addr, nil); r != nil {
		return *r, true
	}
	return Region{}, false
}

// find returns the region that holds addr, or nil. hint is tried first.
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
