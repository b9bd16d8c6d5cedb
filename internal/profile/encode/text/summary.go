package text

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// Maximum widths of names in the summary, in characters. A line of the table, including
// percentages and gaps, then has at most 100.
const (
	functionWidth = 58
	moduleWidth   = 24
)

// SummaryOptions configures a summary.
type SummaryOptions struct {
	// Functions is the maximum number of functions.
	Functions int
	// Value is the index of the value to rank by, in [profile.Profile.ValueTypes].
	Value int
	// Columns is the width of the terminal in characters, 0 if there is none. Names are cut
	// to fit.
	Columns int
	// All shows the totals of all values, rather than of the first and the ranking value.
	// A profile with events of different kinds shows them anyway.
	All bool
	// NoReasons leaves out the table of the notes at the ends of stacks, for summaries with a
	// better one.
	NoReasons bool
	// Native counts each stack for its leaf, even if that is an interpreter's function.
	Native bool
	// Stopped is why the run ended early, "" if it did not.
	Stopped string
}

// Summary writes a few lines about p to w for the end of a run: the totals, the losses by
// cause with their remedies, and the hottest functions. The profile's first value must
// count occurrences.
//
// In the table, self is the share of stacks whose leaf is the function, and total the
// share of stacks that contain it, counted once if it recurs. If the profile has functions of
// interpreted languages, own is the share of stacks that the function owns (see package own),
// and a second table has their lines. Unnamed frames are grouped
// by module. If most stacks end in notes, or all in a few functions that are no program's,
// inner is the share of stacks in which the function is the innermost one of a program, and
// a second table has the notes.
func Summary(w io.Writer, p *profile.Profile, o SummaryOptions) error {
	if o.Value < 0 || o.Value >= len(p.ValueTypes) {
		return fmt.Errorf("write summary: no value %d in a profile of %d", o.Value, len(p.ValueTypes))
	}
	var out strings.Builder
	m := p.Meta
	if o.All || describe.IsMixed(p.ValueTypes) {
		out.WriteString(describe.Totals(p))
		m.Duration = 0 // it is in the totals
	} else {
		out.WriteString(describe.Headline(p, o.Value))
	}
	if run := describe.Run(m); run != "" {
		fmt.Fprintf(&out, " (%s)", run)
	}
	fmt.Fprintln(&out)
	out.WriteString(Stopped(o.Stopped))
	out.WriteString(Losses(p.Losses, describe.NounOfProfile(p), describe.Samples(p)))
	h, total := HottestOf(p, o.Functions, o.Value, o.Native), p.Magnitude(o.Value)
	if len(h.Programs) > 0 {
		writeTable(&out, "inner", h.Programs, total, o.Columns)
		if o.NoReasons {
			h.Reasons = nil
		}
		writeReasons(&out, h.Reasons, total, o.Columns)
	} else {
		writeTable(&out, heading(h.IsOwn), h.Functions, total, o.Columns)
	}
	writeLines(&out, h.Lines[:min(len(h.Lines), shownLines)], total, o.Columns)
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

// heading returns the heading of the shares of functions.
func heading(isOwn bool) string {
	if isOwn {
		return "own"
	}
	return "self"
}

// Stopped returns a line with the reason why a run ended early, "" if it did not.
func Stopped(why string) string {
	if why == "" {
		return ""
	}
	return "  stopped: " + why + "\n"
}

// Losses returns a line for each cause of losses: the loss, in a column, its effect
// and the remedy. It says of how many samples, unless the number is 0.
func Losses(l profile.Losses, of describe.Noun, samples uint64) string {
	var w strings.Builder
	losses := describe.LossesIn(l, of, samples)
	width := 0
	for _, l := range losses {
		width = max(width, len(l.What))
	}
	for _, l := range losses {
		fmt.Fprintf(&w, "  %-*s  %s\n", width, l.What, l.Why())
	}
	return w.String()
}

// Stripped returns a line for each file without symbols, with a remedy.
func Stripped(s profile.StrippedFiles, of describe.Noun) (lines []string) {
	for _, l := range describe.Stripped(s, of) {
		lines = append(lines, strings.TrimSuffix(l.What+", "+l.Why(), ", "))
	}
	return lines
}

// writeTable writes functions with their shares of total, on a terminal with the given
// number of columns, or with 0 for none. own is the heading of the self share.
func writeTable(w *strings.Builder, own string, rows []Function, total int64, columns int) {
	if rows = shown(rows, total); len(rows) == 0 {
		return
	}
	const shares, gap, readable = 18, 2, 16
	width, modules := len("function"), len("module")
	for i := range rows {
		rows[i].Module = cut(rows[i].Module, moduleWidth)
		modules = max(modules, utf8.RuneCountInString(rows[i].Module))
	}
	limit := functionWidth
	if columns > 0 {
		limit = min(limit, max(columns-shares-gap-modules, readable))
	}
	for i := range rows {
		if rows[i].Caller != "" {
			rows[i].Name += calledBy + rows[i].Caller
		}
		rows[i].Name = cut(rows[i].Name, limit)
		width = max(width, utf8.RuneCountInString(rows[i].Name))
	}
	fmt.Fprintf(w, "\n%8s   total  %-*s  module\n", own, width, "function")
	for _, r := range rows {
		fmt.Fprintf(w, "  %5.1f%%  %5.1f%%  %-*s  %s\n",
			percent(r.Self, total), percent(r.Total, total),
			width, r.Name, r.Module)
	}
}

// calledBy is between a native function and the script function that calls it.
const calledBy = " ← "

// writeReasons writes the notes at the ends of stacks with their shares of total.
func writeReasons(w *strings.Builder, reasons []Function, total int64, columns int) {
	if reasons = shown(reasons, total); len(reasons) == 0 {
		return
	}
	limit := functionWidth
	if columns > 0 {
		limit = min(limit, max(columns-10, 16))
	}
	fmt.Fprintf(w, "\n   share  stack ends in\n")
	for _, r := range reasons {
		fmt.Fprintf(w, "  %5.1f%%  %s\n", percent(r.Self, total), cut(r.Name, limit))
	}
}

// shown returns the rows, hottest first, whose share is not printed as 0.0 %.
func shown(rows []Function, total int64) []Function {
	i := slices.IndexFunc(rows, func(f Function) bool { return math.Abs(percent(f.Self, total)) < 0.05 })
	if i < 0 {
		return rows
	}
	return rows[:i]
}

// percent returns part in percent of whole, which is not 0.
func percent(part, whole int64) float64 { return 100 * float64(part) / float64(whole) }
