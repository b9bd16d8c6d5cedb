package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/ui/terminal"
)

// column is a column of a list: its heading, and its width. Negative widths mean
// left-aligned text, 0 means all remaining space. isPath means that the ends of its
// texts matter most.
type column struct {
	heading string
	width   int
	isPath  bool
	widest  int // of a column with width 0: its maximum width, 0 for none
}

// columns holds the columns of each view.
var columns = map[view][]column{
	functionsView: {{"SELF", 7, false, 0}, {"TOTAL", 7, false, 0}, {"FUNCTION", 0, false, 0}, {"MODULE", -24, false, 0}},
	processesView: {{"SAMPLES", 9, false, 0}, {"SHARE", 7, false, 0}, {"PID", 8, false, 0}, {"COMMAND", 0, false, 0}},
	stacksView:    {{"SHARE", 7, false, 0}, {"STACK, LEAF FIRST", 0, false, 0}},
	stackView:     {{"FUNCTION", 0, false, 0}, {"MODULE", -20, false, 0}, {"SOURCE", -36, true, 0}},
}

// columnsOf returns the columns of a view.
func (s *state) columnsOf(v view) []column {
	if v == processesView && s.grouped() {
		meta := s.shown[0].Meta
		return []column{columns[v][0], columns[v][1], {strings.ToUpper(plain.Terminal(cmp.Or(meta.GroupLabel, meta.Grouping.String()))), 0, false, 0}}
	}
	list := columns[v]
	if v == functionsView && s.owned() {
		list = slices.Clone(list)
		list[0].heading = "OWN"
	}
	return list
}

// grouped reports whether the profile has groups instead of processes.
func (s *state) grouped() bool {
	return len(s.shown) > 0 && s.shown[0].Meta.Grouping != profile.GroupNone
}

// all returns the items of the view.
func (s *state) all(t tables) []item {
	var items []item
	share := func(n int64) string { return percent(n, s.whole) }
	switch s.view {
	case functionsView:
		for _, r := range t.functions(s.byTotal) {
			items = append(items, item{
				key: keyOf([]frame{{function: r.function}}), text: r.name + " " + r.module,
				enter: func() {
					s.of = r.function
					s.turnTo(stacksView)
				},
				cells: []string{share(r.self), share(r.total), r.name, r.module},
			})
		}
	case processesView:
		for _, r := range t.processes() {
			pid := strconv.Itoa(r.pid)
			row := item{
				key: pid, text: r.comm + " " + pid,
				enter: func() {
					s.only = r.process
					s.turnTo(functionsView)
				},
				cells: []string{s.number(r.samples), share(r.samples), pid, r.comm},
			}
			if r.group != "" {
				row.key, row.text, row.cells = r.group, r.group, append(row.cells[:2], r.group)
			}
			items = append(items, row)
		}
	case stacksView:
		for _, r := range t.stacks(s.of) {
			names := make([]string, len(r.frames))
			for i, f := range r.frames {
				names[i] = f.name
			}
			line := strings.Join(names, " ← ")
			items = append(items, item{
				key: keyOf(r.frames), text: line,
				enter: func() {
					s.stack = r
					s.turnTo(stackView)
				},
				cells: []string{share(r.samples), line},
			})
		}
	case stackView:
		for i, f := range s.stack.frames {
			items = append(items, item{
				key: strconv.Itoa(i), text: f.name + " " + f.module + " " + f.source,
				cells: []string{f.name, f.module, f.source},
			})
		}
	}
	return items
}

// number returns an amount of the shown value without its name.
func (s *state) number(n int64) string {
	return describe.Quantity(n, s.shown[0].ValueTypes[value].Unit)
}

// percent formats the share of n in whole, "-" if whole is 0.
func percent(n, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(whole))
}

// render returns the lines of a screen of the given size.
func (s *state) render(width, height int) []terminal.Line {
	head := wrap(s.heading(), width, min(2, height/8)) // one line on very low screens
	lines := make([]terminal.Line, 0, height)
	for _, text := range head {
		lines = append(lines, terminal.Line{Text: text, Style: terminal.Bold})
	}
	lines = append(lines, terminal.Line{Text: s.subject()})
	s.page = max(height-len(lines)-2, 1) // without the headings of columns and the keys
	switch {
	case s.helping:
		lines = append(lines, s.keys()...)
	case s.view == flameView:
		lines = append(lines, s.boxes(width)...)
	default:
		lines = append(lines, s.rows(width)...)
	}
	for len(lines) < height-1 {
		lines = append(lines, terminal.Line{})
	}
	lines = append(lines[:min(len(lines), max(height-1, 0))], terminal.Line{Text: s.help(width)})
	for i, l := range lines {
		if l.Spans != nil {
			continue
		}
		lines[i].Text = terminal.Fit(l.Text, width)
		if l.Style == terminal.Normal {
			lines[i].Text = strings.TrimRight(lines[i].Text, " ")
		}
	}
	return lines
}

// rows returns the headings of the columns and the visible items.
func (s *state) rows(width int) []terminal.Line {
	// Scroll to the selected item.
	s.first = min(s.first, s.cursor, max(len(s.items)-s.page, 0))
	s.first = max(s.first, s.cursor-s.page+1)
	end := min(s.first+s.page, len(s.items))
	list := narrowed(s.columnsOf(s.view), s.items[s.first:end], width)
	lines := []terminal.Line{{Text: cells(list, headings(list), width), Style: terminal.Bold}}
	for i := s.first; i < end; i++ {
		line := terminal.Line{Text: cells(list, s.items[i].cells, width)}
		if i == s.cursor {
			line.Style = terminal.Inverse
		}
		lines = append(lines, line)
	}
	return lines
}

// boxes returns a line about the selected box and the visible rows of the flame graph.
func (s *state) boxes(width int) []terminal.Line {
	f := &s.flame
	if f.graph == nil {
		return nil
	}
	f.lay(width)
	n := f.nodes[f.selected]
	s.first = min(s.first, n.depth, max(len(f.rows)-s.page, 0))
	s.first = max(s.first, n.depth-s.page+1)
	about := percent(n.total, s.whole) + ", self " + percent(n.self, s.whole) + "  " + f.name(f.selected)
	if n.module != "" && n.module != "-" {
		about += "  " + n.module
	}
	rows := make([]terminal.Line, s.page)
	for i, row := range f.rows[s.first:min(s.first+s.page, len(f.rows))] {
		at := i
		if f.upward {
			at = s.page - 1 - i
		}
		rows[at] = f.line(row, width, s.Colored)
	}
	return append([]terminal.Line{{Text: about, Style: terminal.Bold}}, rows...)
}

// wrap joins parts with commas into at least one line, and at most the given
// number. Only the last can be wider than width. No comma is at the end of a line.
func wrap(parts []string, width, limit int) []string {
	lines := []string{parts[0]}
	for _, part := range parts[1:] {
		last := &lines[len(lines)-1]
		if joined := *last + ", " + part; terminal.Width(joined) <= width || len(lines) >= limit {
			*last = joined
		} else {
			lines = append(lines, "  "+part)
		}
	}
	return lines
}

// heading describes the measurement and the shown part of it, in parts to be joined with
// commas.
func (s *state) heading() []string {
	var duration time.Duration
	var total int64
	var losses profile.Losses
	for _, p := range s.shown {
		duration += p.Meta.Duration
		total += p.Total(value)
		losses = losses.Plus(p.Losses)
	}
	var parts []string
	// First, so that it is not truncated.
	switch {
	case s.Whole:
	case s.ended:
		parts = append(parts, "the measurement has ended")
	case s.paused:
		parts = append(parts, "PAUSED")
	}
	parts = append(parts, s.Title)
	switch {
	case len(s.shown) == 0:
		parts = append(parts, "waiting for the first window…")
	case s.Whole:
		text := describe.Amount(total, s.shown[0].ValueTypes[value])
		if duration > 0 { // not every file has it
			text += fmt.Sprintf(" in %.1f s", duration.Seconds())
		}
		parts = append(parts, text)
	default:
		parts = append(parts, fmt.Sprintf("last %.1f s", duration.Seconds()), describe.Amount(total, s.shown[0].ValueTypes[value]), describe.Lost(losses, describe.NounOfProfile(s.shown[0].Profile), shownLosses))
	}
	if s.Whole {
		parts[0] = "fulgur: " + parts[0]
	} else {
		parts[0] = "fulgur top: " + parts[0]
	}
	return parts
}

// shownLosses limits the losses in a line.
const shownLosses = 2

// subject describes the selection.
func (s *state) subject() string {
	var parts []string
	// First, so that the user sees it while typing.
	what := "filter: "
	if s.view == flameView {
		what = "search: "
	}
	if s.typing {
		parts = append(parts, what+plain.Terminal(s.filter+"_"))
	} else if s.filter != "" {
		parts = append(parts, what+plain.Terminal(s.filter))
	}
	switch s.view {
	case functionsView:
		order := "self"
		switch {
		case s.byTotal:
			order = "total"
		case s.owned():
			order = "own"
		}
		parts = append(parts, "functions by "+order)
	case processesView:
		if s.grouped() {
			parts = append(parts, "groups")
		} else {
			parts = append(parts, "processes")
		}
	case flameView:
		if s.flame.found != nil {
			parts = append(parts, percent(s.flame.matched, s.whole)+" matched")
		}
		parts = append(parts, "flame graph")
		if z := s.flame.zoomed; z != 0 {
			parts = append(parts, "zoomed into "+s.flame.name(z))
		}
	case stacksView:
		parts = append(parts, "stacks with "+s.of.name)
	case stackView:
		parts = append(parts, fmt.Sprintf("a stack with %s, %s", s.of.name, percent(s.stack.samples, s.whole)))
	}
	switch {
	case s.only.group != "":
		parts = append(parts, "of "+s.only.group)
	case s.only != process{}:
		parts = append(parts, fmt.Sprintf("of %s (%d)", s.only.comm, s.only.pid))
	}
	return strings.Join(parts, ", ")
}

// narrowed returns columns for visible items: one with all remaining space is only as wide as its
// texts if others follow it, so that these are next to it on a wide screen.
func narrowed(of []column, items []item, width int) []column {
	of = slices.Clone(of)
	for c := range of[:len(of)-1] {
		if of[c].width != 0 {
			continue
		}
		of[c].widest = terminal.Width(of[c].heading)
		for _, i := range items {
			of[c].widest = min(max(of[c].widest, terminal.Width(i.cells[c])), width)
		}
	}
	return of
}

func headings(of []column) []string {
	var names []string
	for _, c := range of {
		names = append(names, c.heading)
	}
	return names
}

// cells returns a line of a list. A left-aligned column takes at most a quarter of the
// screen, and on wide screens a fifth. On narrow screens, the rightmost of them are left out.
func cells(of []column, text []string, width int) string {
	const minWidth = 20 // minimum width of the column with width 0
	shown := len(of)
	fixed := func(c column) int {
		if c.width < 0 {
			return min(max(-c.width, width/5), width/4)
		}
		return c.width
	}
	room := func() int {
		left := width
		for _, c := range of[:shown] {
			left -= fixed(c) + 1
		}
		return left + 1
	}
	for shown > 1 && room() < minWidth && of[shown-1].width < 0 {
		shown--
	}
	var parts []string
	for i, c := range of[:shown] {
		switch {
		case c.width == 0:
			space := max(room(), 1)
			if c.widest > 0 {
				space = min(space, c.widest)
			}
			parts = append(parts, terminal.Fit(text[i], space))
		case c.isPath:
			parts = append(parts, terminal.FitEnd(text[i], fixed(c)))
		case c.width < 0:
			parts = append(parts, terminal.Fit(text[i], fixed(c)))
		default:
			parts = append(parts, strings.Repeat(" ", max(c.width-terminal.Width(text[i]), 0))+text[i])
		}
	}
	return strings.Join(parts, " ")
}
