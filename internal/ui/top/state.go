package top

import (
	"slices"
	"strings"
	"unicode/utf8"

	"fulgur/internal/profile"
	"fulgur/internal/ui/terminal"
)

// view is what the screen shows.
type view uint8

const (
	functionsView view = iota
	processesView
	stacksView // of the chosen function
	stackView  // the chosen one, whole
)

// state is what is shown, and what the user chose. All that happens to it is
// [state.add] and [state.press].
type state struct {
	title string
	last  int // how many windows are shown

	windows []*window // the last ones, the newest at the end
	shown   []*window // those that are on the screen
	paused  bool
	ended   bool // the measurement has

	view    view
	byTotal bool
	filter  string
	typing  bool // keys go to the filter
	only    process
	of      function
	stack   stackRow

	items  []item
	whole  int64 // samples that count
	cursor int   // the chosen item
	first  int   // the first one on the screen
	page   int   // how many there are on the screen
	quit   bool
}

// item is a line of a list that can be chosen.
type item struct {
	key   string // what it is, from one window to the next
	text  string // what a filter looks at
	enter func() // what happens when it is chosen; nil if nothing does
	cells []string
}

// add takes a window's profile.
func (s *state) add(p *profile.Profile) {
	s.windows = append(s.windows, newWindow(p))
	if excess := len(s.windows) - s.last; excess > 0 {
		s.windows = slices.Clone(s.windows[excess:]) // or the old ones would stay
	}
	if !s.paused {
		s.refresh()
	}
}

// refresh shows the last windows. What was chosen stays chosen, unless it is the
// first item of a list.
func (s *state) refresh() {
	s.shown = s.windows
	s.list()
}

// list makes the items of the view anew.
func (s *state) list() {
	chosen := ""
	if s.cursor > 0 && s.cursor < len(s.items) {
		chosen = s.items[s.cursor].key
	}
	t := tables{s.shown, s.only.pid}
	s.whole = t.whole()
	if s.view == stackView {
		s.stack.samples = t.ofStack(s.of, s.stack.frames)
	}
	s.items = s.matching(s.all(t))
	s.cursor = min(s.cursor, max(len(s.items)-1, 0))
	for i, item := range s.items {
		if chosen != "" && item.key == chosen {
			s.cursor = i
		}
	}
}

// matching returns the items that the filter leaves: those that contain it, in
// whatever case.
func (s *state) matching(all []item) []item {
	if s.filter == "" {
		return all
	}
	wanted := strings.ToLower(s.filter)
	var kept []item
	for _, i := range all {
		if strings.Contains(strings.ToLower(i.text), wanted) {
			kept = append(kept, i)
		}
	}
	return kept
}

// turnTo shows another view from its beginning.
func (s *state) turnTo(v view) {
	s.view, s.cursor, s.first, s.filter, s.items = v, 0, 0, "", nil
	s.list()
}

// press acts on a key.
func (s *state) press(k terminal.Key) {
	if s.typing {
		s.typed(k)
		return
	}
	switch k {
	case 'q':
		s.quit = true
	case terminal.Up, 'k':
		s.move(-1)
	case terminal.Down, 'j':
		s.move(1)
	case terminal.PageUp:
		s.move(-s.page)
	case terminal.PageDown:
		s.move(s.page)
	case terminal.Home, 'g':
		s.move(-len(s.items))
	case terminal.End, 'G':
		s.move(len(s.items))
	case terminal.Enter:
		if s.cursor < len(s.items) && s.items[s.cursor].enter != nil {
			s.items[s.cursor].enter()
		}
	case terminal.Escape, terminal.Backspace:
		s.back()
	case 's', 't':
		s.byTotal = k == 't'
		s.list()
	case 'p':
		s.only = process{}
		s.turnTo(processesView)
	case 'f':
		s.turnTo(functionsView)
	case '/':
		s.typing = true
	case ' ':
		s.paused = !s.paused
		if !s.paused {
			s.refresh()
		}
	}
}

// typed acts on a key while the filter is written.
func (s *state) typed(k terminal.Key) {
	switch k {
	case terminal.Enter:
		s.typing = false
	case terminal.Escape:
		s.typing, s.filter = false, ""
	case terminal.Backspace:
		_, size := utf8.DecodeLastRuneInString(s.filter)
		s.filter = s.filter[:len(s.filter)-size]
	case terminal.Clear:
		s.filter = ""
	default:
		if k <= utf8.MaxRune {
			s.filter += string(rune(k))
		}
	}
	s.list()
}

func (s *state) move(by int) {
	s.cursor = min(max(s.cursor+by, 0), max(len(s.items)-1, 0))
}

// back leaves what was entered last.
func (s *state) back() {
	switch {
	case s.filter != "":
		s.filter = ""
		s.list()
	case s.view == stackView:
		s.turnTo(stacksView)
	case s.view == stacksView, s.view == processesView:
		s.turnTo(functionsView)
	case s.only != process{}:
		s.turnTo(processesView)
		s.only = process{}
		s.list()
	}
}
