package unwindmap

import "fulgur/internal/unwind"

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

func newRules(limit uint32, m Mode) *rules {
	r := &rules{
		limit: limit,
		// The zero rule is for addresses without a table.
		index: map[unwind.Rule]uint32{
			{}: ruleNone, {Kind: unwind.KindUnsupported}: ruleFirst, {Kind: unwind.KindUnread}: ruleUnread,
		},
		next:        ruleFirst + 1,
		unsupported: ruleFirst,
	}
	for arg, index := range chains {
		if m == Tables {
			index = ruleNone
		}
		r.index[unwind.Chain(uint8(arg))] = index
	}
	return r
}

// addTable returns the index of each rule of a table, and the rules that are new. Their
// indexes are consecutive, starting at first.
func (r *rules) addTable(t *unwind.Table) (indexes []uint32, first uint32, fresh []unwind.Rule) {
	first = r.next
	indexes = make([]uint32, len(t.Rules))
	for i, rule := range t.Rules {
		index, ok := r.index[rule]
		switch {
		case ok:
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

// tableWords returns a table in the form of the kernel's walker: its blocks unchanged,
// then its rows with the indexes of global rules.
func tableWords(t *unwind.Table, indexes []uint32) []uint32 {
	words := make([]uint32, 0, len(t.Blocks)+len(t.Rows))
	words = append(words, t.Blocks...)
	for _, row := range t.Rows {
		words = append(words, uint32(row.WithRule(indexes[row.Rule()])))
	}
	return words
}
