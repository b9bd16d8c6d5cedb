package unwindmap

import (
	"fulgur/internal/bpf"
	"fulgur/internal/process"
	"fulgur/internal/unwind"
)

// Mode selects how stacks are walked.
type Mode uint8

// The modes of walking.
const (
	// Auto uses tables where available, and frame pointers elsewhere.
	Auto Mode = iota
	// Tables uses only tables; a stack ends where there is none.
	Tables
)

// entry maps a process image to its layout.
type entry struct{ Image, Layout uint64 }

// seal returns the entry in the form that programs read, see unwind_seal in
// bpf/unwind_maps.h.
func (e entry) seal() sealed {
	return sealed{Seal: e.Image ^ e.Layout*bpf.HashMultiplier, Layout: e.Layout}
}

// unseal is the inverse of seal.
func unseal(s sealed) entry { return entry{s.Seal ^ s.Layout*bpf.HashMultiplier, s.Layout} }

// Bit widths of the fields of an [entry]'s layout.
const (
	firstBits = bpf.UnwindUnwindLayoutBitsUNWIND_LAYOUT_FIRST_BITS
	countBits = bpf.UnwindUnwindLayoutBitsUNWIND_LAYOUT_COUNT_BITS
	saltBits  = bpf.UnwindUnwindLayoutBitsUNWIND_LAYOUT_SALT_BITS
)

// packLayout returns the word that identifies a layout to programs: the span of its
// mappings, and its salt.
func packLayout(at span, salt uint32) uint64 {
	return uint64(at.start) | uint64(at.n)<<firstBits | uint64(salt)<<(firstBits+countBits)
}

// layoutSpan returns the span of a layout's mappings.
func layoutSpan(word uint64) span {
	return span{uint32(word & (1<<firstBits - 1)), uint32(word >> firstBits & (1<<countBits - 1))}
}

// layoutSalt returns the salt of a layout.
func layoutSalt(word uint64) uint32 { return uint32(word >> (firstBits + countBits)) }

// placement is where a file's table is in the space of words. The zero value is for a
// file without a table.
type placement struct {
	segments     []unwind.Segment
	blocks, rows uint32 // words
}

// appendMappings appends m in the form of the kernel's walker: the parts that segments of
// its file describe, and the parts between them.
func appendMappings(list []mapping, m process.Mapping, p placement, fallback uint32) []mapping {
	const padding = 4096 // next to a segment: shorter parts hold no code
	bare := func(start, end uint64) {
		if start < end && (len(p.segments) == 0 || end-start >= padding) {
			list = append(list, mapping{Start: start, End: end, Rows: noTable, Fallback: fallback})
		}
	}
	at := m.Start
	for i := range p.segments {
		s := &p.segments[i]
		// Within a segment, address and file offset differ by a constant.
		low, high := max(s.Offset, m.Offset), min(s.Offset+s.Size, m.Offset+(m.Limit-m.Start))
		if low >= high {
			continue
		}
		start, end := m.Start+(low-m.Offset), m.Start+(high-m.Offset)
		if start < at {
			continue // segments that share bytes of the file
		}
		bare(at, start)
		list = append(list, mapping{
			Start: start, End: end,
			Bias:     m.Start - m.Offset + s.Offset - s.Addr,
			Blocks:   p.blocks + s.FirstBlock - uint32(s.Addr>>unwind.BlockShift),
			Rows:     p.rows,
			Fallback: fallback,
		})
		at = end
	}
	bare(at, m.Limit)
	return list
}
