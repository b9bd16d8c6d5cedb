package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/sides"
)

// shownLines limits the lines of functions in text.
const shownLines = 10

// shownFrames limits the innermost frames of a path in text.
const shownFrames = 8

// WriteJSON writes r as JSON.
func (r *Report) WriteJSON(w io.Writer) error { return writeJSON(w, r) }

// WriteText writes r for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	return r.write(w, layout{
		heading: func(s string) string { return "\n" + s + "\n" },
		item:    func(s string) string { return "  " + strip(s) + "\n" },
		row: func(own, total, function, module string) string {
			if module != "" {
				function += " (" + module + ")"
			}
			return fmt.Sprintf("  %7s %7s  %s\n", own, total, function)
		},
		columns: func(string) string { return "" },
		name:    func(s string) string { return s },
		slowest: func(all []profile.SlowInterval) string { return "  " + strings.Join(sides.Lines(all), "\n  ") + "\n" },
	})
}

// WriteMarkdown writes r as Markdown. Names are code, so that none of them is markup, a link
// or a mention.
func (r *Report) WriteMarkdown(w io.Writer) error {
	return r.write(w, layout{
		heading: func(s string) string { return "\n## " + s + "\n\n" },
		item:    func(s string) string { return "- " + quoted(s) + "\n" },
		row: func(own, total, function, module string) string {
			return fmt.Sprintf("| %s | %s | %s | %s |\n", own, total, function, module)
		},
		columns: func(own string) string { return "| " + own + " | total | function | module |\n|---:|---:|---|---|\n" },
		name:    func(s string) string { return plain.Code(s, true) },
		slowest: slowestMarkdown,
	})
}

// layout is the format of a report.
type layout struct {
	heading func(string) string
	item    func(string) string // of a text with marked names
	row     func(own, total, function, module string) string
	columns func(own string) string // heading of a table with a heading for the own share
	name    func(string) string     // in a cell
	slowest func([]profile.SlowInterval) string
}

// slowestMarkdown returns a table of the slowest intervals in Markdown.
func slowestMarkdown(all []profile.SlowInterval) string {
	var b strings.Builder
	heading, rows := sides.Table(all)
	rule := make([]string, len(heading))
	for c := range heading {
		rule[c] = "---"
		if sides.IsAmount(c) {
			rule[c] = "---:"
		}
		if c >= sides.Columns {
			heading[c] = plain.Code(heading[c], true)
		}
	}
	fmt.Fprintf(&b, "| %s |\n|%s|\n", strings.Join(heading, " | "), strings.Join(rule, "|"))
	for _, row := range rows {
		for c := range row {
			if c >= sides.ThreadColumn && row[c] != "" {
				row[c] = plain.Code(row[c], true)
			}
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// module returns the name of a module in a cell, or "" for none.
func (l layout) module(s string) string {
	if s == profile.UnknownModule {
		return ""
	}
	return l.name(s)
}

func (r *Report) write(w io.Writer, l layout) error {
	var b strings.Builder
	if head := strings.Trim(r.Run+"; "+r.Machine, "; "); head != "" {
		b.WriteString(strings.TrimLeft(l.item(begin+head+end), " -"))
	}
	if len(r.Findings) > 0 {
		b.WriteString(l.heading("Findings"))
	}
	for _, f := range r.Findings {
		text := f.marked
		if f.Remedy != "" {
			text += " Remedy: " + begin + f.Remedy + end + "."
		}
		b.WriteString(l.item(text))
	}
	switch {
	case len(r.Programs) > 0:
		b.WriteString(l.heading("Innermost functions of programs by " + r.Value))
		b.WriteString(l.columns("inner"))
		for _, f := range visible(r.Programs, func(f Program) float64 { return f.Inner }) {
			b.WriteString(l.row(percent(f.Inner), percent(f.Total), l.name(f.Name), l.module(f.Module)))
		}
	case len(r.Functions) > 0:
		b.WriteString(l.heading("Functions by " + r.Value))
		share := "self"
		if r.isOwn {
			share = "own"
		}
		b.WriteString(l.columns(share))
		for _, f := range visible(r.Functions, func(f Function) float64 { return f.Own }) {
			name := l.name(f.Name)
			if f.Caller != "" {
				name += " ← " + l.name(f.Caller)
			}
			b.WriteString(l.row(percent(f.Own), percent(f.Total), name, l.module(f.Module)))
		}
	}
	if len(r.Lines) > 0 {
		b.WriteString(l.heading("Lines by " + r.Value))
	}
	for _, line := range visible(r.Lines[:min(len(r.Lines), shownLines)], func(l Line) float64 { return l.Own }) {
		b.WriteString(l.item(percent(line.Own) + " " + begin + line.place + end + " " + begin + line.Function + end))
	}
	if len(r.Reasons) > 0 {
		b.WriteString(l.heading("Stacks end in"))
	}
	for _, reason := range visible(r.Reasons, func(reason Reason) float64 { return reason.Share }) {
		b.WriteString(l.item(percent(reason.Share) + " " + begin + reason.Name + end))
	}
	if len(r.Paths) > 0 {
		b.WriteString(l.heading("Paths"))
	}
	for _, p := range visible(r.Paths, func(p Path) float64 { return p.Share }) {
		b.WriteString(l.item(percent(p.Share) + " " + begin + chain(p.Frames) + end))
	}
	if len(r.slowest) > 0 {
		b.WriteString(l.heading("Slowest intervals"))
		b.WriteString(l.slowest(r.slowest))
	}
	if len(r.Losses) > 0 {
		b.WriteString(l.heading("Losses"))
	}
	for _, loss := range r.Losses {
		text := begin + loss.What + end
		for _, more := range []string{loss.Effect, loss.Remedy} {
			if more != "" {
				text += "; " + begin + more + end
			}
		}
		b.WriteString(l.item(text))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// chain returns the innermost frames of a stack as text.
func chain(frames []string) string {
	if n := len(frames); n > shownFrames {
		return "… → " + strings.Join(frames[n-shownFrames:], " → ")
	}
	return strings.Join(frames, " → ")
}

// visible returns the beginning of a list, largest shares first, without the rows that would show
// 0.0 %, but at least the first row.
func visible[T any](list []T, share func(T) float64) []T {
	n := slices.IndexFunc(list, func(row T) bool { return percent(share(row)) == percent(0) })
	if n < 0 {
		return list
	}
	return list[:max(n, 1)]
}

// quoted turns the marked names of a text into code spans.
func quoted(s string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, begin)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, _ := strings.Cut(rest, end)
		b.WriteString(plain.Code(name, false))
		s = after
	}
}
