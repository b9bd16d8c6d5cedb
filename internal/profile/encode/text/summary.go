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
	// Answers are sentences about what dominates, the most important first.
	Answers []string
	// Table is the profile of the table, if it is not that of the summary.
	Table *profile.Profile
	// Verbose writes all answers, functions and losses. Otherwise, there are at most AnswerLines
	// lines, without the losses.
	Verbose bool
}

// AnswerLines is the maximum number of lines of a short summary, without empty ones.
const AnswerLines = 8

// Limits of the parts of a short summary.
const (
	maxAnswers   = 3
	fewFunctions = 2 // functions, even if answers are long
	fewReasons   = 2
	answerWidth  = 100 // of lines, if there is no terminal
)

// Summary writes a few lines about p to w for the end of a run: the totals, what dominates, and the
// hottest functions; if verbose, also the losses by cause with their remedies. The profile's first value
// must count occurrences.
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
	if o.Verbose {
		out.WriteString(Losses(p.Losses, describe.NounOfProfile(p), describe.Samples(p)))
	}
	width := answerWidth
	if o.Columns > 0 {
		width = o.Columns
	}
	left := AnswerLines - lines(out.String(), width)
	for i, answer := range o.Answers {
		n := lines("  "+answer, width)
		if !o.Verbose && (i == maxAnswers || left-n < 1+fewFunctions && i > 0) {
			break
		}
		fmt.Fprintf(&out, "  %s\n", answer)
		left -= n
	}
	shown := cmp.Or(o.Table, p)
	h, total := HottestOf(shown, o.Functions, o.Value, o.Native), shown.Magnitude(o.Value)
	if o.NoReasons || len(h.Programs) == 0 {
		h.Reasons = nil
	}
	if !o.Verbose {
		h.shorten(left)
	}
	by := ""
	if describe.IsMixed(p.ValueTypes) {
		by = ", by " + plain.Terminal(p.ValueTypes[o.Value].Type)
	}
	if describe.IsClock(m) {
		explain(h.Functions)
	}
	if len(h.Programs) > 0 {
		writeTable(&out, "inner", by, h.Programs, total, o.Columns)
		writeReasons(&out, h.Reasons, total, o.Columns)
	} else {
		writeTable(&out, heading(h.IsOwn), by, h.Functions, total, o.Columns)
	}
	if o.Verbose {
		writeLines(&out, h.Lines[:min(len(h.Lines), shownLines)], total, o.Columns)
	}
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

// lines returns the number of lines that text takes, wrapped to the given width.
func lines(text string, width int) (n int) {
	for line := range strings.Lines(text) {
		n += max(1, (utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))+width-1)/width)
	}
	return n
}

// shorten shortens the lists to the given number of lines with their headings, but leaves a few functions.
func (h *Hottest) shorten(lines int) {
	h.Reasons = h.Reasons[:min(len(h.Reasons), fewReasons)]
	if lines-1-len(h.Reasons) < 1+fewFunctions {
		h.Reasons = nil
	}
	if len(h.Reasons) > 0 {
		lines -= 1 + len(h.Reasons)
	}
	n := max(lines-1, fewFunctions)
	h.Functions, h.Programs = h.Functions[:min(len(h.Functions), n)], h.Programs[:min(len(h.Programs), n)]
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
// number of columns, or with 0 for none. own is the heading of the self share; by follows that of the names.
func writeTable(w *strings.Builder, own, by string, rows []Function, total int64, columns int) {
	if rows = shown(rows, total); len(rows) == 0 {
		return
	}
	const shares, gap, readable = 18, 2, 16
	heading := "function" + by
	width, modules := len(heading), len("module")
	for i := range rows {
		name, noted := strings.CutSuffix(rows[i].Module, lateNote)
		rows[i].Module = cut(name, moduleWidth)
		if noted {
			rows[i].Module += lateNote
		}
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
	fmt.Fprintf(w, "\n%8s   total  %-*s  module\n", own, width, heading)
	for _, r := range rows {
		fmt.Fprintf(w, "  %5.1f%%  %5.1f%%  %-*s  %s\n",
			percent(r.Self, total), percent(r.Total, total),
			width, r.Name, r.Module)
	}
}

// calledBy is between a native function and the script function that calls it.
const calledBy = " ← "

// explain marks functions of the kernel that have the time of code that the clock cannot sample.
func explain(rows []Function) {
	for i, r := range rows {
		if describe.EnablesInterrupts(r.Name) && kernelModules[r.Module] {
			rows[i].Module += lateNote
		}
	}
}

// lateNote is in the row of a function that enables interrupts.
const lateNote = ": interrupts were off"

// kernelModules are the modules of the kernel's own functions.
var kernelModules = map[string]bool{"kernel.kallsyms": true, "vmlinux": true}

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
