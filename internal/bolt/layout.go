package bolt

import "fulgur/internal/process/addrspace"

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

// Bounds implements [addrspace.Part].
func (r Region) Bounds() (start, limit uint64) { return r.Start, r.End }

// Cut implements [addrspace.Part].
func (r Region) Cut(start, limit uint64) Region {
	r.Start, r.End = start, limit
	return r
}

// Same reports whether r and o map the same bytes wherever they overlap.
func (r Region) Same(o Region) bool { return r.Binary == o.Binary && r.bias == o.bias }

// Layout holds the regions of a process. The zero value is for a process that maps no binary.
type Layout = addrspace.Space[Region]

// find returns the region of l that contains addr, or nil. It tries hint first.
func find(l Layout, addr uint64, hint *Region) *Region {
	if hint != nil && addr >= hint.Start && addr < hint.End {
		return hint
	}
	return l.At(addr)
}
