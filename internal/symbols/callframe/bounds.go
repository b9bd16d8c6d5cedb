package callframe

import (
	"cmp"
	"debug/elf"
	"errors"
	"slices"

	"fulgur/internal/symbols/elffile"
)

// Bounds are the bounds of the function at an address, from call frame information. They
// are link-time virtual addresses, or 0 if unknown.
type Bounds struct {
	// Start and End are the bounds of the FDE that covers the address. Among several such
	// FDEs, the one that begins last counts, as for exceptions.
	Start, End uint64
	// If no FDE covers the address, Below is the end of the last FDE before it, and Above
	// the start of the first one after it.
	Below, Above uint64
}

// Find returns the bounds at each of addrs, which must be sorted in ascending order. It uses
// .eh_frame and, for addresses that no FDE there covers, .debug_frame. With the search table
// of .eh_frame_hdr, it reads only the required parts, otherwise the whole section. After an
// error, the result is usable, but may lack bounds.
func Find(f *elffile.File, addrs []uint64) ([]Bounds, error) {
	bounds := make([]Bounds, len(addrs))
	eh, err := OpenEH(f)
	errs := []error{err}
	if eh != nil {
		n, err := neighborsEH(eh, addrs)
		errs = append(errs, err)
		for i := range bounds {
			bounds[i].add(n[i], addrs[i])
		}
	}
	var rest []int
	for i, b := range bounds {
		if b.Start == 0 {
			rest = append(rest, i)
		}
	}
	if len(rest) == 0 {
		return bounds, errors.Join(errs...)
	}
	debug, err := OpenDebug(f)
	errs = append(errs, err)
	if debug != nil {
		open := make([]uint64, len(rest))
		for i, at := range rest {
			open[i] = addrs[at]
		}
		n, err := debug.scan(open)
		errs = append(errs, err)
		for i, at := range rest {
			bounds[at].add(n[i], addrs[at])
		}
	}
	return bounds, errors.Join(errs...)
}

// add adds a section's neighbors of addr, unless a function already covers addr.
func (b *Bounds) add(n neighbors, addr uint64) {
	switch {
	case b.Start != 0:
	case n.last.Start != 0 && addr-n.last.Start < n.last.Size:
		*b = Bounds{Start: n.last.Start, End: n.last.Start + n.last.Size}
	default:
		if n.last.Start != 0 {
			b.Below = max(b.Below, n.last.Start+n.last.Size)
		}
		if b.Above == 0 || n.next != 0 && n.next < b.Above {
			b.Above = n.next
		}
	}
}

// HasIndex reports whether a file has a search table, with which [Find] does not read whole sections.
func HasIndex(f *elffile.File) bool {
	h, _ := openHeader(f)
	return h != nil && h.entries > 0
}

// All returns the bounds of at most limit functions in .eh_frame, in no order. After an error, the
// result is usable, but may lack functions.
func All(f *elffile.File, limit int) (all []Bounds, err error) {
	eh, err := OpenEH(f)
	if eh == nil {
		return nil, err
	}
	scanErr := eh.functions(func(f FDE) {
		if len(all) < limit {
			all = append(all, Bounds{Start: f.Start, End: f.Start + f.Size})
		}
	})
	return all, errors.Join(err, scanErr)
}

// neighbors holds the functions around an address.
type neighbors struct {
	// last is the last function that begins at or below the address, or zero. Its end does
	// not overflow.
	last FDE
	// next is the start of the first function above the address, or 0.
	next uint64
}

func neighborsEH(eh *Section, addrs []uint64) ([]neighbors, error) {
	// Without a usable header, .eh_frame itself is complete.
	if h, _ := openHeader(eh.file); h != nil && h.entries > 0 && h.frames == eh.addr {
		return h.search(eh, addrs)
	}
	return eh.scan(addrs)
}

// scan reads the whole section for the neighbors of addrs, which must be sorted.
func (s *Section) scan(addrs []uint64) ([]neighbors, error) {
	// found[i] holds the last function that begins above addrs[i-1] and at or below addrs[i],
	// and the start of the first such function.
	type slot struct {
		last  FDE
		first uint64
	}
	found := make([]slot, len(addrs)+1)
	err := s.functions(func(f FDE) {
		i, _ := slices.BinarySearch(addrs, f.Start)
		if f.Start > found[i].last.Start {
			found[i].last = f
		}
		if found[i].first == 0 || f.Start < found[i].first {
			found[i].first = f.Start
		}
	})
	around := make([]neighbors, len(addrs))
	var last FDE
	for i := range around {
		if found[i].last.Start != 0 {
			last = found[i].last
		}
		around[i].last = last
	}
	next := found[len(addrs)].first
	for i := range slices.Backward(around) {
		around[i].next = next
		if found[i].first != 0 {
			next = found[i].first
		}
	}
	return around, err
}

// functions yields the functions of the whole section, without their programs.
func (s *Section) functions(yield func(FDE)) error {
	var cies CIEs[*CIE]
	var damage error
	err := s.Chunks(func(c Chunk) error {
		damage = cmp.Or(damage, c.Damage)
		s.Entries(c, func(e *Entry, err error) {
			if err == nil && e.IsCIE {
				return
			}
			var f FDE
			if err == nil {
				f, err = s.FDE(e, cies.Get(s.CIE(e), s.ReadCIE))
			}
			damage = cmp.Or(damage, err)
			if err == nil && s.real(f) {
				f.Program = Program{}
				yield(f)
			}
		})
		return nil
	})
	return errors.Join(err, damage)
}

// real reports whether f describes code in the file, rather than a function that the linker
// dropped.
func (s *Section) real(f FDE) bool {
	if f.Start == 0 || f.Size == 0 || f.Start+f.Size < f.Start {
		return false
	}
	return slices.ContainsFunc(s.file.Segments(), func(seg elffile.Segment) bool {
		return seg.Type == elf.PT_LOAD && seg.Flags&elf.PF_X != 0 && f.Start-seg.Addr < seg.MemSize
	})
}
