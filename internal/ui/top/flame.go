package top

import (
	"slices"
	"strings"

	"fulgur/internal/message/shortname"
	"fulgur/internal/ui/terminal"
)

// flame is the flame graph view: its graph and the user's choices. The root is on top.
type flame struct {
	*graph
	selected, zoomed int
	upward           bool // the root is at the bottom
	short            bool // whether to show short names

	found   []bool  // by node, whether it matches the search; nil without one
	matched int64   // total of the matches
	rows    [][]box // as drawn
}

// show shows another graph, with the same selection, zoom and search.
func (f *flame) show(g *graph, search string) {
	if f.graph != nil {
		f.selected, f.zoomed = g.find(f.graph, f.selected), g.find(f.graph, f.zoomed)
	}
	f.graph, f.found, f.matched = g, nil, 0
	if search != "" {
		f.found, f.matched = g.matches(search)
	}
}

// lay lays the boxes out for a screen of the given width. A selected box without a place
// leaves the selection to its caller.
func (f *flame) lay(width int) {
	f.rows = f.layout(f.zoomed, width)
	for f.place(f.selected) < 0 {
		f.selected = f.nodes[f.selected].parent
	}
}

// place returns the index of a node's box in its row, or -1 if it has none.
func (f *flame) place(id int) int {
	depth := f.nodes[id].depth
	if depth >= len(f.rows) {
		return -1
	}
	return slices.IndexFunc(f.rows[depth], func(b box) bool { return b.node == id })
}

// move selects the box that a key leads to, as on the page.
func (f *flame) move(k terminal.Key) {
	n := f.nodes[f.selected]
	if f.upward {
		switch k {
		case terminal.Up:
			k = terminal.Down
		case terminal.Down:
			k = terminal.Up
		}
	}
	switch k {
	case terminal.Up:
		f.selected = n.parent
	case terminal.Down:
		if n.depth+1 < len(f.rows) {
			f.selected = f.widest(f.rows[n.depth+1])
		}
	case terminal.Left, terminal.Right:
		row, by := f.rows[n.depth], 1
		if k == terminal.Left {
			by = -1
		}
		if i := f.place(f.selected) + by; i >= 0 && i < len(row) {
			f.selected = row[i].node
		}
	case terminal.Home:
		f.selected = 0
	}
}

// widest returns the widest callee of the selected box in the row above it, or the selected
// box if it has none.
func (f *flame) widest(row []box) int {
	var best box
	for _, b := range row {
		if f.nodes[b.node].parent == f.selected && b.to-b.from > best.to-best.from {
			best = b
		}
	}
	if best == (box{}) {
		return f.selected
	}
	return best.node
}

// step selects the next match of the search after the selected box, or before it if by is
// -1, row by row.
func (f *flame) step(by int) {
	var all []int
	at := 0
	for _, row := range f.rows {
		for _, b := range row {
			if b.node == f.selected {
				at = len(all)
			}
			all = append(all, b.node)
		}
	}
	for i := range all {
		id := all[((at+by*(i+1))%len(all)+len(all))%len(all)]
		if f.isMatch(id) {
			f.selected = id
			return
		}
	}
}

// isMatch reports whether a node matches the search.
func (f *flame) isMatch(id int) bool { return id < len(f.found) && f.found[id] }

// boxColors are the background colors of boxes, of xterm's 256: two for each kind, so that
// neighbors differ.
var boxColors = [...][2]uint8{
	rootBox: {252, 252}, processBox: {146, 152}, userBox: {216, 215}, inlinedBox: {222, 228},
	kernelBox: {117, 111}, jitBox: {121, 115}, unnamedBox: {250, 248}, noteBox: {182, 183},
}

// foundColors are the colors of matches.
var foundColors = [2]uint8{213, 207}

// line returns a row of boxes, of the given width. Without colors, brackets separate the
// boxes.
func (f *flame) line(row []box, width int, colored bool) terminal.Line {
	var line terminal.Line
	end := 0
	add := func(text string, style terminal.Style, color uint8) {
		line.Spans = append(line.Spans, terminal.Span{Text: text, Style: style, Background: color})
	}
	blank := func(n int) {
		if n > 0 {
			add(strings.Repeat(" ", n), terminal.Normal, 0)
		}
	}
	for i, b := range row {
		blank(b.from - end)
		end = b.to
		found, style := f.isMatch(b.node), terminal.Normal
		if b.node == f.selected {
			style = terminal.Inverse
		}
		if !colored {
			add(f.bracketed(b, found), style, 0)
			continue
		}
		colors := boxColors[f.nodes[b.node].kind]
		if found {
			colors = foundColors
		}
		gap := min(1, b.to-b.from-1)
		add(f.fit(b.node, b.to-b.from-gap), style, colors[i%2])
		blank(gap)
	}
	blank(width - end)
	return line
}

// bracketed returns the text of a box without colors.
func (f *flame) bracketed(b box, found bool) string {
	left, right := "[", "]"
	if found {
		left, right = "{", "}"
	}
	switch width := b.to - b.from; width {
	case 1:
		return "|"
	case 2:
		return left + right
	default:
		return left + f.fit(b.node, width-2) + right
	}
}

// fit returns as much of a node's name as width columns show, padded to the width.
func (f *flame) fit(id, width int) string {
	const readable = 3
	if width < readable {
		return strings.Repeat(" ", width)
	}
	return terminal.Fit(shortname.Fit(f.name(id), width), width)
}

// name returns the name of a node that the view shows.
func (f *flame) name(id int) string {
	if n := f.nodes[id]; f.short && n.kind != rootBox && n.kind != processBox && n.kind != noteBox {
		return shortname.Of(n.name)
	}
	return f.nodes[id].name
}
