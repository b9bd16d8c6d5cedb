package unwindmap

import (
	"fulgur/internal/process"
	"fulgur/internal/unwind"
)

// Mode says what stacks are walked by.
type Mode uint8

// The modes.
const (
	// Auto takes tables where there are some, frame pointers elsewhere.
	Auto Mode = iota
	// Tables takes tables alone; a stack ends where there is none.
	Tables
)

// entry says what layout a process has that runs an image.
type entry struct{ Image, Layout uint64 }

// hashMultiplier is HASH_MULTIPLIER of bpf/task.h.
const hashMultiplier = 0x9e3779b97f4a7c15

// seal returns the entry as programs read it: see unwind_seal in bpf/unwind_maps.h.
func (e entry) seal() sealed {
	return sealed{Seal: e.Image ^ e.Layout*hashMultiplier, Layout: e.Layout}
}

// unseal returns the entry that seal made s of.
func unseal(s sealed) entry { return entry{s.Seal ^ s.Layout*hashMultiplier, s.Layout} }

// The numbers of bits in an [entry]'s layout (UNWIND_LAYOUT_*_BITS).
const (
	firstBits = 24
	countBits = 16
	saltBits  = 24
)

// packLayout returns the word by which programs find a layout: where its
// mappings are, and its salt.
func packLayout(at run, salt uint32) uint64 {
	return uint64(at.start) | uint64(at.n)<<firstBits | uint64(salt)<<(firstBits+countBits)
}

// layoutRun returns where the mappings of a layout are.
func layoutRun(word uint64) run {
	return run{uint32(word & (1<<firstBits - 1)), uint32(word >> firstBits & (1<<countBits - 1))}
}

// layoutSalt returns the salt of a layout.
func layoutSalt(word uint64) uint32 { return uint32(word >> (firstBits + countBits)) }

// placement is where a file's table is in the space of words. The zero value is
// that of a file without one.
type placement struct {
	segments     []unwind.Segment
	blocks, rows uint32 // words
}

// code is a sort of code.
type code uint8

const (
	nativeCode code = iota
	// describedCode is native code of a file that has a table. What that
	// leaves out is written by hand, and mostly has no frame pointers.
	describedCode
	goCode
	// foreignCode is for another machine, such as that of 32-bit programs.
	foreignCode
)

// fallback returns the rule that holds in such code where no table describes it.
func (c code) fallback(m Mode) uint32 {
	switch {
	case m == Tables || c == foreignCode || c == describedCode:
		return ruleNone
	case c == goCode:
		return ruleChainGo
	}
	return ruleChain
}

// appendMappings appends what the kernel's walker is told of m: the parts of it
// that segments of its file describe, and what is between them.
func appendMappings(list []mapping, m process.Mapping, p placement, fallback uint32) []mapping {
	const padding = 4096 // beside segments; no code is in less
	bare := func(start, end uint64) {
		if start < end && (len(p.segments) == 0 || end-start >= padding) {
			list = append(list, mapping{Start: start, End: end, Rows: noTable, Fallback: fallback})
		}
	}
	at := m.Start
	for i := range p.segments {
		s := &p.segments[i]
		// In a segment, a file offset is an address less a constant.
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
