package unwindmap

import (
	"debug/elf"

	"fulgur/internal/unwind"
)

// rules holds the distinct rules of all files. They are never removed: the libraries of a
// machine share most of their rules, and the walker's cache refers to them by index. The
// first rules are constants of bpf/unwind_maps.h.
type rules struct {
	limit uint32
	index map[unwind.Rule]uint32
	next  uint32
	// unsupported is the index that replaces rules for which there is no room.
	unsupported uint32
	refused     uint64
}

func newRules(limit uint32) *rules {
	return &rules{
		limit: limit,
		// The zero rule is for addresses without a table.
		index:       map[unwind.Rule]uint32{{}: ruleNone, {Kind: unwind.KindUnsupported}: ruleFirst},
		next:        ruleFirst + 1,
		unsupported: ruleFirst,
	}
}

// addTable returns the index of each rule of a table, and the rules that are new. Their
// indexes are consecutive, starting at first. chain is the index for code that keeps frame pointers.
func (r *rules) addTable(t *unwind.Table, chain uint32) (indexes []uint32, first uint32, fresh []unwind.Rule) {
	first = r.next
	indexes = make([]uint32, len(t.Rules))
	for i, rule := range t.Rules {
		index, ok := r.index[rule]
		switch {
		case ok:
		case rule.Kind == unwind.KindChain:
			index = chain
		case rule.Kind == unwind.KindUnread:
			index = ruleUnread
		case r.next >= r.limit:
			r.refused++
			index = r.unsupported
		default:
			index = r.next
			r.index[rule] = index
			r.next++
			fresh = append(fresh, rule)
		}
		indexes[i] = index
	}
	return indexes, first, fresh
}

// longGap is a size in bytes. Where [unwind.Compile] does not analyze code, a larger gap in a table is
// assumed to be generated code, such as the built-in functions of a script engine, which keeps frame
// pointers as JIT code does. A smaller gap is assumed to be hand-written code, which keeps none.
const longGap = 16 << 10

// gapRule returns the rule for long gaps in the tables of a machine.
func gapRule(m elf.Machine, fallback uint32) uint32 {
	if unwind.ReadsCode(m) {
		return ruleNone
	}
	return fallback
}

// tableWords returns a table in the form of the kernel's walker: its blocks unchanged,
// then its rows with the indexes of global rules. gapRule is the rule for long gaps.
func tableWords(t *unwind.Table, indexes []uint32, gapRule uint32) []uint32 {
	words := make([]uint32, 0, len(t.Blocks)+len(t.Rows))
	words = append(words, t.Blocks...)
	for i, s := range t.Segments {
		limit := uint32(len(t.Blocks))
		if i+1 < len(t.Segments) {
			limit = t.Segments[i+1].FirstBlock
		}
		base := s.Addr >> unwind.BlockShift << unwind.BlockShift
		gap, isGap := uint64(0), false // for the last row
		end := func(at uint64) {
			if last := len(words) - 1; isGap && at-gap >= longGap {
				words[last] = uint32(unwind.Row(words[last]).WithRule(gapRule))
			}
		}
		for b := s.FirstBlock; b+1 < limit; b++ {
			for _, row := range t.Rows[t.Blocks[b]:t.Blocks[b+1]] {
				at := base + uint64(row.Low())
				end(at)
				gap, isGap = at, indexes[row.Rule()] == ruleNone
				words = append(words, uint32(row.WithRule(indexes[row.Rule()])))
			}
			base += 1 << unwind.BlockShift
		}
		end(s.Addr + s.Size)
	}
	return words
}
