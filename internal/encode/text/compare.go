package text

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"fulgur/internal/profile"
)

// Compare writes a table of the at most n functions of p, a comparison (see
// [profile.Diff]), whose own share changed most, those that changed most first.
// Shares are of the samples of either profile: self counts those whose leaf is
// the function, total those that have it anywhere in their stacks. n of 0 means
// all.
func Compare(w io.Writer, p *profile.Profile, n int) error {
	if len(p.ValueTypes) < 2 {
		return fmt.Errorf("write comparison: a profile with %d values", len(p.ValueTypes))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "base %d %s, new %d\n", p.Total(0), p.ValueTypes[0].Unit, p.Total(1))
	writeChanges(&out, changes(p, n))
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}

// change is a function with its shares, in percent.
type change struct {
	name, module                   string
	self, selfNew, total, totalNew float64
}

// changes returns the functions whose shares differ.
func changes(p *profile.Profile, n int) []change {
	before, after := tally(p, 0), tally(p, 1)
	share := func(part, whole int64) float64 {
		if whole == 0 {
			return 0
		}
		return percent(part, whole)
	}
	was, is := p.Total(0), p.Total(1)
	var list []change
	for i, b := range before {
		a := after[i]
		c := change{
			b.name, b.module, share(b.self, was), share(a.self, is), share(b.total, was), share(a.total, is),
		}
		if c.self != c.selfNew || c.total != c.totalNew {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b change) int {
		return cmp.Or(cmp.Compare(b.changed(), a.changed()), cmp.Compare(max(b.total, b.totalNew), max(a.total, a.totalNew)),
			cmp.Compare(a.name, b.name), cmp.Compare(a.module, b.module))
	})
	if n > 0 {
		list = list[:min(n, len(list))]
	}
	return list
}

// changed returns by how much the function's own share changed, either way.
func (c change) changed() float64 { return max(c.selfNew-c.self, c.self-c.selfNew) }

// writeChanges writes the table.
func writeChanges(w *strings.Builder, list []change) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no function's share changed")
		return
	}
	width := len("function")
	for i := range list {
		list[i].name = cut(list[i].name, functionWidth)
		list[i].module = cut(list[i].module, moduleWidth)
		width = max(width, utf8.RuneCountInString(list[i].name))
	}
	fmt.Fprintf(w, "\n   ------- self -------    ------ total -------\n")
	fmt.Fprintf(w, "    base     new  change    base     new  change  %-*s  module\n", width, "function")
	for _, c := range list {
		fmt.Fprintf(w, "  %5.1f%%  %5.1f%%  %+6.1f  %5.1f%%  %5.1f%%  %+6.1f  %-*s  %s\n",
			c.self, c.selfNew, c.selfNew-c.self, c.total, c.totalNew, c.totalNew-c.total, width, c.name, c.module)
	}
}
