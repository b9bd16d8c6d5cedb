package text

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/own"
)

// CompareOptions configures a comparison.
type CompareOptions struct {
	// Functions is the maximum number of functions; 0 means all.
	Functions int
	// Value is the type of the values, such as "samples"; empty if unknown.
	Value string
	// Shares shows percentages of either profile instead of amounts.
	Shares bool
	// Columns is the width of the terminal in characters, 0 if there is none. On a narrow one,
	// the table has neither total values nor functions whose self value is the same, and names
	// are cut to fit.
	Columns int
}

// Compare writes a table of the functions of p, a comparison (see [profile.Diff]), by
// change of their self value, largest first. Self is the value of the stacks that the function
// owns, see package own, and total the value of the stacks that contain it.
func Compare(w io.Writer, p *profile.Profile, o CompareOptions) error {
	if len(p.ValueTypes) < 2 {
		return fmt.Errorf("write comparison: a profile with %d values", len(p.ValueTypes))
	}
	var out strings.Builder
	amounts := amountsOf(p.ValueTypes[1].Unit)
	if amounts.unit == "count" && o.Value != "" {
		amounts.unit = plain.Terminal(o.Value)
	}
	fmt.Fprintf(&out, "base %.*f, new %s\n", amounts.decimals, amounts.of(p.Total(0)), amounts.text(p.Total(1)))
	shown := [2]scale{amounts, amounts}
	if o.Shares {
		shown = [2]scale{sharesOf(p.Total(0)), sharesOf(p.Total(1))}
	}
	list := changes(p, shown)
	if o.Functions > 0 {
		list = list[:min(o.Functions, len(list))]
	}
	writeChanges(&out, list, shown[0], o.Columns)
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}

// scale determines the display of values.
type scale struct {
	factor   float64
	unit     string
	decimals int
}

// amountsOf returns the scale for amounts in a unit of [profile.ValueType].
func amountsOf(unit string) scale {
	switch unit {
	case "nanoseconds":
		return scale{1e-6, "ms", 1}
	case "bytes":
		return scale{1.0 / 1024, "KiB", 1}
	}
	return scale{1, plain.Terminal(unit), 0}
}

// amountsFrom returns the scale for amounts from the smallest, which is not 0, to the largest.
// It keeps short times from being 0.0 ms.
func amountsFrom(unit string, smallest, largest int64) scale {
	const ms = 1_000_000
	switch {
	case unit == "nanoseconds" && largest < ms:
		return scale{1e-3, "µs", 1}
	case unit == "nanoseconds" && smallest < ms/10:
		return scale{1e-6, "ms", 3}
	}
	return amountsOf(unit)
}

// sharesOf returns the scale for percentages of a total.
func sharesOf(total int64) scale {
	if total == 0 {
		return scale{0, "%", 1}
	}
	return scale{100 / float64(total), "%", 1}
}

func (s scale) of(n int64) float64 { return float64(n) * s.factor }

// text formats an amount with its unit, if it has one.
func (s scale) text(n int64) string {
	if s.unit == "count" {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%.*f %s", s.decimals, s.of(n), s.unit)
}

// columns returns the heading of columns in this scale, without the unit if that does not fit into
// width characters.
func (s scale) columns(what string, width int) string {
	if long := what + ", in " + s.unit; s.unit != "count" && utf8.RuneCountInString(long) <= width {
		return long
	}
	return what
}

// change is a function with its values before and after.
type change struct {
	name, module string
	self, total  pair
}

type pair struct{ before, after float64 }

func (p pair) change() float64 { return p.after - p.before }

// changes returns the functions that changed, in the scales of both profiles.
func changes(p *profile.Profile, shown [2]scale) []change {
	owners := own.Of(p).Frames
	before, after := tally(p, 0, owners), tally(p, 1, owners)
	var list []change
	for i, b := range before {
		a := after[i]
		c := change{
			b.name, b.module,
			pair{shown[0].of(b.self), shown[1].of(a.self)}, pair{shown[0].of(b.total), shown[1].of(a.total)},
		}
		if c.self.change() != 0 || c.total.change() != 0 {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b change) int {
		return cmp.Or(
			cmp.Compare(math.Abs(b.self.change()), math.Abs(a.self.change())),
			cmp.Compare(math.Abs(b.total.change()), math.Abs(a.total.change())),
			cmp.Compare(a.name, b.name), cmp.Compare(a.module, b.module),
		)
	})
	return list
}

// writeChanges writes the table with numbers in the unit of s. columns is the width of the
// terminal, 0 if there is none.
func writeChanges(w *strings.Builder, list []change, s scale, columns int) {
	if len(list) == 0 {
		fmt.Fprintln(w, "nothing changed")
		return
	}
	const wide, gap, readable = 30, 2, 16
	const numbers = wide + gap // the width of self or total
	totals, names, modules := true, functionWidth, moduleWidth
	if columns > 0 {
		totals = columns >= 2*numbers+readable+gap+moduleWidth
		room := columns - numbers - gap
		if totals {
			room -= numbers
		}
		modules = min(modules, room*2/5)
		names = max(min(names, room-modules), readable)
	}
	if !totals {
		// Without totals, functions whose own value is the same did not change.
		list = slices.DeleteFunc(list, func(c change) bool { return c.self.change() == 0 })
		if len(list) == 0 {
			fmt.Fprintln(w, "only totals changed; a wider terminal shows them")
			return
		}
	}
	width := len("function")
	for i := range list {
		list[i].name = cut(list[i].name, names)
		list[i].module = cut(list[i].module, modules)
		width = max(width, utf8.RuneCountInString(list[i].name))
	}
	heading, changed := fmt.Sprintf("%*s", wide, s.columns("self", wide)), fmt.Sprintf("%10s%10s%10s  ", "base", "new", "change")
	if totals {
		heading += fmt.Sprintf("%*s", gap+wide, s.columns("total", wide))
		changed += changed
	}
	fmt.Fprintf(w, "\n%s\n%s%-*s  module\n", heading, changed, width, "function")
	for _, c := range list {
		values := []pair{c.self}
		if totals {
			values = append(values, c.total)
		}
		for _, p := range values {
			fmt.Fprintf(w, "%10.*f%10.*f%+10.*f  ", s.decimals, p.before, s.decimals, p.after, s.decimals, p.change())
		}
		fmt.Fprintf(w, "%-*s  %s\n", width, c.name, c.module)
	}
}
