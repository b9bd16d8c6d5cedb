package text

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	"fulgur/internal/profile"
)

// Group is what has something in common: what that is, and the sums of its values.
type Group struct {
	Name   string
	Values []int64
}

// GroupOptions choose what a table of groups shows.
type GroupOptions struct {
	// By is the heading of what groups have in common.
	By string
	// Value is the index of the value by which groups are sorted, the largest
	// first.
	Value int
	// Rows is how many groups there are at most. The others become one row.
	Rows int
}

// Groups returns the lines of a table of groups, with a column for each value; none
// if there is no group.
func Groups(types []profile.ValueType, groups []Group, o GroupOptions) []string {
	if len(groups) == 0 {
		return nil
	}
	groups = slices.Clone(groups)
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Values[o.Value], a.Values[o.Value]), cmp.Compare(a.Name, b.Name))
	})
	if len(groups) > o.Rows {
		rest := Group{fmt.Sprintf("(%d others)", len(groups)-o.Rows), make([]int64, len(types))}
		for _, g := range groups[o.Rows:] {
			for i, n := range g.Values {
				rest.Values[i] += n
			}
		}
		groups = append(groups[:o.Rows], rest)
	}
	table := make([][]string, len(groups)+1)
	for _, t := range types {
		table[0] = append(table[0], t.Type)
	}
	for i, g := range groups {
		for j, n := range g.Values {
			table[i+1] = append(table[i+1], amountsOf(types[j].Unit).text(n))
		}
	}
	widths := make([]int, len(types))
	for _, row := range table {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var lines []string
	for i, row := range table {
		line := ""
		for j, cell := range row {
			line += fmt.Sprintf("%*s  ", widths[j], cell)
		}
		name := o.By
		if i > 0 {
			name = cut(groups[i-1].Name, groupWidth)
		}
		lines = append(lines, line+name)
	}
	return lines
}

// groupWidth is how much of a group's name is shown: paths are long.
const groupWidth = 100
