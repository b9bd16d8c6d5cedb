package unwind

import "fulgur/internal/symbols/elffile"

// Code is what a walker knows of the code of a file, or of memory without a file.
type Code struct {
	// Table is the table of a file, or nil.
	Table *Table
	// Fallback is the rule for code that Table does not describe: a [Chain], or the zero Rule if the code may
	// use the frame pointer for something else.
	Fallback Rule
}

// Generated returns the code of memory without a file: what JITs generate keeps frame pointers.
func Generated() Code { return Code{Fallback: Chain(ChainAny)} }

// CodeOf returns the code of a file for the walker's machine. t is its table, or nil if it has none.
func CodeOf(f *elffile.File, t *Table) Code {
	switch {
	case IsGo(f):
		return Code{t, Chain(ChainStacks)}
	case t != nil && (t.Stats.Source > 0 || t.Stats.Analyzed || t.Stats.Unread > 0):
		// The table also tells where frame pointers are kept.
		return Code{Table: t}
	}
	return Code{t, Chain(ChainAny)}
}

// Rule returns the rule for a link-time virtual address, see [Table.Lookup].
func (c Code) Rule(addr uint64) Rule {
	if c.Table != nil {
		if r := c.Table.Lookup(addr); r.Kind != KindNone {
			return r
		}
	}
	return c.Fallback
}
