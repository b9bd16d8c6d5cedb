package unwindmap

import "fulgur/internal/unwind"

// rules are the rules of all files, each once. They are never taken back: a
// machine's libraries share most of theirs, and the walker's cache holds
// their indexes. The first ones are bpf/unwind_maps.h's own.
type rules struct {
	limit uint32
	index map[unwind.Rule]uint32
	next  uint32
	// unsupported is the rule of those that there is no room for.
	unsupported uint32
	refused     uint64
}

func newRules(limit uint32) *rules {
	return &rules{
		limit: limit,
		// The zero rule is that of addresses without a table.
		index:       map[unwind.Rule]uint32{{}: ruleNone, {Kind: unwind.KindUnsupported}: ruleFirst},
		next:        ruleFirst + 1,
		unsupported: ruleFirst,
	}
}

// addTable returns for each rule of a table its index here, and those that are
// new, whose indexes are consecutive from first on.
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

// tableWords are a table's words as the kernel's walker reads them: its blocks
// as they are, then its rows with the indexes of global rules.
func tableWords(t *unwind.Table, indexes []uint32) []uint32 {
	words := make([]uint32, 0, len(t.Blocks)+len(t.Rows))
	words = append(words, t.Blocks...)
	for _, row := range t.Rows {
		words = append(words, uint32(row.WithRule(indexes[row.Rule()])))
	}
	return words
}
