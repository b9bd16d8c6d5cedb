package text

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"fulgur/internal/profile"
)

// Group is a group of samples: what they have in common and the sums of their values.
type Group struct {
	Name   string
	Values []int64
}

// GroupOptions configures a table of groups.
type GroupOptions struct {
	// By is the heading of the column with the groups' names.
	By string
	// Value is the index of the value to sort by, largest first.
	Value int
	// Rows is the maximum number of groups. The others become one row.
	Rows int
}

// Groups returns the lines of a table of groups with a column for each value, or none if
// there are no groups.
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
	for j, t := range types {
		smallest, largest := int64(math.MaxInt64), int64(0)
		for _, g := range groups {
			largest = max(largest, g.Values[j])
			if g.Values[j] > 0 {
				smallest = min(smallest, g.Values[j])
			}
		}
		amounts := amountsFrom(t.Unit, smallest, largest)
		for i, g := range groups {
			table[i+1] = append(table[i+1], amounts.text(g.Values[j]))
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

// groupWidth is the maximum displayed length of a group's name, since paths can be long.
const groupWidth = 100
