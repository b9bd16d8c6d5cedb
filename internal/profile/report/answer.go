package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile/encode/describe"
)

// column is a column of an answer.
type column struct {
	heading string
	isName  bool // untrusted text, otherwise a number
	text    func(*Row) string
}

// The columns of answers.
var (
	selfColumn     = column{"self", false, func(r *Row) string { return percent(r.SelfShare) }}
	totalColumn    = column{"total", false, func(r *Row) string { return percent(r.Share) }}
	partColumn     = column{"of function", false, func(r *Row) string { return percent(r.Part) }}
	processColumn  = column{"pid", false, once(func(r *Row) string { return number(r.Process) })}
	threadColumn   = column{"tid", false, once(func(r *Row) string { return number(r.Thread) })}
	addressColumn  = column{"address", false, func(r *Row) string { return r.Address }}
	textColumn     = column{"instruction", true, func(r *Row) string { return r.Text }}
	functionColumn = column{"function", true, func(r *Row) string { return r.Function }}
	moduleColumn   = column{"module", true, func(r *Row) string { return r.Module }}
	taskColumn     = column{"name", true, once(func(r *Row) string { return r.Task })}
	reasonColumn   = column{"reason", true, func(r *Row) string { return r.Reason }}
	pathColumn     = column{"stack", true, func(r *Row) string { return chain(r.Frames) }}
	lineColumn     = column{"line", true, func(r *Row) string {
		if r.File == "" || r.Line == 0 {
			return r.File
		}
		return fmt.Sprintf("%s:%d", r.File, r.Line)
	}}
)

// once returns a text only for the first of several rows of a thread.
func once(text func(*Row) string) func(*Row) string {
	return func(r *Row) string {
		if r.Continued {
			return ""
		}
		return text(r)
	}
}

// number returns n, or "-" if it is unknown.
func number(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// WriteJSON writes a as JSON.
func (a *Answer) WriteJSON(w io.Writer) error { return writeJSON(w, a) }

// WriteText writes a for a terminal.
func (a *Answer) WriteText(w io.Writer) error {
	columns, rows := a.columns(), a.shown()
	cells := make([][]string, 0, len(rows)+1)
	for i := range len(rows) + 1 {
		cells = append(cells, nil)
		for _, c := range columns {
			text := a.heading(c)
			if i > 0 {
				text = c.text(&rows[i-1])
			}
			cells[i] = append(cells[i], text)
		}
	}
	widths := make([]int, len(columns))
	for _, row := range cells {
		for i, cell := range row {
			widths[i] = min(max(widths[i], utf8.RuneCountInString(cell)), maxCell)
		}
	}
	var b strings.Builder
	b.WriteString(strip(a.head()) + "\n\n")
	for _, row := range cells {
		line := ""
		for i, cell := range row {
			padding := strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(cell), 0))
			if columns[i].isName {
				line += "  " + cell + padding
			} else {
				line += "  " + padding + cell
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	b.WriteString(a.rest(func(s string) string { return s }))
	_, err := io.WriteString(w, b.String())
	return err
}

// maxCell is the width to which columns are aligned, in characters. Longer names move the rest of their row.
const maxCell = 60

// WriteMarkdown writes a as Markdown. Names are code, as in [Report.WriteMarkdown].
func (a *Answer) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(quoted(a.head()) + "\n\n|")
	columns, rows := a.columns(), a.shown()
	for _, c := range columns {
		b.WriteString(" " + a.heading(c) + " |")
	}
	b.WriteString("\n|")
	for _, c := range columns {
		if c.isName {
			b.WriteString("---|")
		} else {
			b.WriteString("---:|")
		}
	}
	b.WriteString("\n")
	for i := range rows {
		b.WriteString("|")
		for _, c := range columns {
			cell := c.text(&rows[i])
			if c.isName && cell != "" {
				cell = plain.Code(cell, true)
			}
			b.WriteString(" " + cell + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString(a.rest(func(s string) string { return plain.Code(s, false) }))
	_, err := io.WriteString(w, b.String())
	return err
}

// columns returns the columns of text.
func (a *Answer) columns() []column {
	return append(slices.Clip(a.question.columns), a.sliceColumns()...)
}

// shown returns the rows of text.
func (a *Answer) shown() []Row {
	if a.Slices != nil {
		return statesOf(a.Rows)
	}
	return a.Rows
}

// heading returns the heading of a column.
func (a *Answer) heading(c column) string {
	if a.isOwn && c.heading == selfColumn.heading {
		return "own"
	}
	return c.heading
}

// head says what the rows are, with marked names.
func (a *Answer) head() string {
	if a.Slices != nil {
		return a.timelineHead()
	}
	text := a.question.Title
	if a.question.OfAny && len(a.Functions) > 0 {
		text += " with"
	}
	for i, f := range a.Functions[:min(len(a.Functions), maxSuggestions)] {
		separator := ", "
		if i == 0 {
			separator = " "
		}
		text += separator + begin + f.Function + end
		if f.Module != "" {
			text += " of " + begin + f.Module + end
		}
		text += " (" + percent(f.Share) + ")"
	}
	if more := len(a.Functions) + a.MoreFunctions - maxSuggestions; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ", by " + begin + a.Value + end + ", " + describe.Quantity(a.Total, a.Unit) + " in all:"
}

// rest says how many rows were left out, and what is missing.
func (a *Answer) rest(name func(string) string) (text string) {
	if a.More > 0 {
		text = "\n" + plural(uint64(a.More), "and 1 more\n", "and # more\n")
	}
	for _, note := range a.Notes {
		text += "\n" + name(note) + "\n"
	}
	return text
}

// writeJSON writes v as JSON for scripts and people.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
