package top

import (
	"fulgur/internal/ui/terminal"
)

// keyHelp is a key or a group of keys, with a word for the last line of the screen and a
// description.
type keyHelp struct{ keys, word, description string }

// flameKeys are the keys of the flame graph, the most important first. The page
// has the same keys.
var flameKeys = []keyHelp{
	{"arrows", "move", "move through the graph"},
	{"enter/esc", "zoom", "zoom in; leave the search, zoom or graph"},
	{"/", "search", "search for functions"},
	{"n/N", "", "next and previous match"},
	{"s/t", "table", "table of functions, by self or total"},
	{"i", "turn over", "root at the bottom"},
	{"a", "abbreviate", "abbreviate names"},
	{"home", "", "go to the root"},
	{"p", "", "processes"},
}

// listKeys are the keys of lists.
var listKeys = []keyHelp{
	{"enter/esc", "open/back", "open a function, stack or process; go back"},
	{"s/t", "by self/total", "functions by self or total samples"},
	{"f", "flame graph", "flame graph"},
	{"p", "processes", "processes, or groups with --by"},
	{"/", "filter", "filter the list"},
	{"up, down", "", "select"},
}

// commonKeys are the keys of every view.
var commonKeys = []keyHelp{
	{"q", "quit", "quit"},
	{"?", "keys", "list the keys"},
}

// liveKeys are the keys of measurements that go on.
var liveKeys = []keyHelp{{"space", "pause", "freeze the display"}}

// known returns the keys of the view, the most important first.
func (s *state) known() []keyHelp {
	keys := append([]keyHelp(nil), commonKeys...)
	if s.view == flameView {
		keys = append(keys, flameKeys...)
	} else {
		keys = append(keys, listKeys...)
	}
	if !s.Whole {
		keys = append(keys, liveKeys...)
	}
	return keys
}

// help returns a line with as many keys as fit.
func (s *state) help(width int) string {
	switch {
	case s.typing:
		return "enter keep  esc clear"
	case s.helping:
		return "any key returns"
	}
	line := ""
	for _, k := range s.known() {
		if k.word == "" {
			continue
		}
		if line != "" {
			k.keys = "  " + k.keys
		}
		if more := line + k.keys + " " + k.word; terminal.Width(more) <= width || line == "" {
			line = more
		}
	}
	return line
}

// keys returns the list of keys.
func (s *state) keys() []terminal.Line {
	lines := []terminal.Line{{}}
	for _, k := range s.known() {
		lines = append(lines, terminal.Line{Text: terminal.Fit("  "+k.keys, 14) + k.description})
	}
	return lines
}
