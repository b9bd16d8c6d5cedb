package text

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/own"
)

// Line is a line of a function of an interpreted language, with the sum of a value that the
// function owns there, including native functions that are called from it.
type Line struct {
	Function, File string
	// Number is 1-based.
	Number int
	Self   int64
}

// Place returns the name of the file and the line, "app.py:42".
func (l Line) Place() string { return fmt.Sprintf("%s:%d", path.Base(l.File), l.Number) }

// shownLines is the number of lines in the summary.
const shownLines = 5

// hottestLines returns up to n of the hottest lines of script functions by a value. Frames without a
// line are left out.
func hottestLines(p *profile.Profile, n, value int, owners own.Owners) []Line {
	sums := map[Line]int64{}
	waiters := p.Waiters()
	for _, s := range p.Samples {
		id := owners.Frames[waiters[s.Stack]]
		if f := p.Frames[id]; id != 0 && owners.IsScript(id) && f.Line > 0 {
			sums[Line{Function: p.FrameName(id), File: p.Functions[f.Function].File, Number: f.Line}] += s.Values[value]
		}
	}
	var lines []Line
	for l, sum := range sums {
		if l.Self = sum; sum != 0 && l.File != "" {
			lines = append(lines, l)
		}
	}
	slices.SortFunc(lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(magnitude(b.Self), magnitude(a.Self)), cmp.Compare(b.Self, a.Self),
			cmp.Compare(a.File, b.File), cmp.Compare(a.Number, b.Number), cmp.Compare(a.Function, b.Function))
	})
	return lines[:min(n, len(lines))]
}

// writeLines writes lines of script functions with their shares of total, on a terminal with the
// given number of columns, or with 0 for none.
func writeLines(w *strings.Builder, lines []Line, total int64, columns int) {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l Line) bool { return percent(magnitude(l.Self), total) < 0.05 })
	if len(lines) == 0 {
		return
	}
	const share, gap, readable = 10, 2, 16
	names, width := make([]string, len(lines)), len("line")
	for i, l := range lines {
		names[i] = cut(plain.Terminal(l.Place()), placeWidth)
		width = max(width, utf8.RuneCountInString(names[i]))
	}
	limit := functionWidth
	if columns > 0 {
		limit = min(limit, max(columns-share-width-gap, readable))
	}
	fmt.Fprintf(w, "\n%8s  %-*s  function\n", heading(true), width, "line")
	for i, l := range lines {
		fmt.Fprintf(w, "  %5.1f%%  %-*s  %s\n", percent(l.Self, total), width, names[i], cut(l.Function, limit))
	}
}

// placeWidth is the maximum width of a file with a line, in characters.
const placeWidth = 32
