package text

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// Widths beyond which the summary cuts names, in characters. A line of the
// table, percentages and gaps included, then has at most 100.
const (
	functionWidth = 58
	moduleWidth   = 24
)

// SummaryOptions choose what a summary is of.
type SummaryOptions struct {
	// Functions is how many functions are named at most.
	Functions int
	// Value is the index of the value that ranks them, in [profile.Profile]'s
	// ValueTypes.
	Value int
	// All tells the amounts of all values, not of the first and that one alone.
	All bool
}

// Summary writes a few lines on p to w, meant for the end of a run: how much there
// is and of what, what was lost by cause with the remedy, and the functions that
// have most of it. The profile's first value must count occurrences.
//
// In the table, self is the share of stacks whose leaf is the function,
// total that of stacks with the function anywhere in them, counted once
// if it recurs. Frames without a name are taken together by module.
func Summary(w io.Writer, p *profile.Profile, o SummaryOptions) error {
	if o.Value < 0 || o.Value >= len(p.ValueTypes) {
		return fmt.Errorf("write summary: no value %d in a profile of %d", o.Value, len(p.ValueTypes))
	}
	var out strings.Builder
	out.WriteString(describe.Amount(p.Total(0), p.ValueTypes[0]))
	for v := 1; v < len(p.ValueTypes); v++ {
		if o.All || v == o.Value {
			fmt.Fprintf(&out, ", %s", describe.Amount(p.Total(v), p.ValueTypes[v]))
		}
	}
	if run := describe.Run(p.Meta); run != "" {
		fmt.Fprintf(&out, " (%s)", run)
	}
	fmt.Fprintln(&out)
	out.WriteString(Losses(p.Losses))
	writeTable(&out, hottest(p, o.Functions, o.Value), p.Total(o.Value))
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// Losses returns a line for each cause of a loss: what is lost, in a column, its
// effect and the remedy.
func Losses(l profile.Losses) string {
	var w strings.Builder
	losses := describe.Losses(l)
	width := 0
	for _, l := range losses {
		width = max(width, len(l.What))
	}
	for _, l := range losses {
		fmt.Fprintf(&w, "  %-*s  %s", width, l.What, l.Effect)
		if l.Remedy != "" {
			fmt.Fprintf(&w, "; %s", l.Remedy)
		}
		fmt.Fprintln(&w)
	}
	return w.String()
}

// writeTable writes rows with their shares of total.
func writeTable(w *strings.Builder, rows []row, total int64) {
	if len(rows) == 0 {
		return
	}
	width := len("function")
	for i := range rows {
		rows[i].name = cut(rows[i].name, functionWidth)
		rows[i].module = cut(rows[i].module, moduleWidth)
		width = max(width, utf8.RuneCountInString(rows[i].name))
	}
	fmt.Fprintf(w, "\n    self   total  %-*s  module\n", width, "function")
	for _, r := range rows {
		fmt.Fprintf(w, "  %5.1f%%  %5.1f%%  %-*s  %s\n",
			percent(r.self, total), percent(r.total, total),
			width, r.name, r.module)
	}
}

// percent returns how many hundredths of whole part is; whole is not 0.
func percent(part, whole int64) float64 { return 100 * float64(part) / float64(whole) }
