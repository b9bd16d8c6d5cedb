package top

import (
	"slices"
	"strings"
	"unicode/utf8"

	"fulgur/internal/profile"
	"fulgur/internal/ui/terminal"
)

// view is the kind of screen.
type view uint8

const (
	functionsView view = iota
	processesView
	stacksView // of the selected function
	stackView  // the selected stack
	flameView
)

// state is the content of the screen and the user's choices. Only [state.add] and
// [state.press] change it.
type state struct {
	Options

	windows []*window // recent windows, the newest last
	shown   []*window // windows on the screen
	paused  bool
	ended   bool // whether the measurement has ended

	view    view
	byTotal bool
	filter  string
	typing  bool // whether keys go to the filter
	only    process
	of      function
	stack   stackRow
	flame   flame
	helping bool // whether the list of keys is shown

	items  []item
	whole  int64 // total number of samples shown
	cursor int   // index of the selected item
	first  int   // index of the first visible item
	page   int   // number of visible items
	quit   bool
}

// item is a selectable line of a list.
type item struct {
	key   string // identifies the item across windows
	text  string // text for the filter
	enter func() // action of Enter, nil if none
	cells []string
}

// add adds a window's profile.
func (s *state) add(p *profile.Profile) {
	s.windows = append(s.windows, newWindow(p, s.Native))
	if excess := len(s.windows) - s.Windows; excess > 0 {
		s.windows = slices.Clone(s.windows[excess:]) // clone, so that old windows can be freed
	}
	if !s.paused {
		s.refresh()
	}
}

// owned reports whether functions are shown with the samples that they own, rather than those that end
// in them.
func (s *state) owned() bool {
	return slices.ContainsFunc(s.shown, func(w *window) bool { return w.owners.Scripts && !s.Native })
}

// refresh shows the recent windows. The selected item stays selected, unless it is
// the first item of a list.
func (s *state) refresh() {
	s.shown = s.windows
	s.list()
}

// list rebuilds the items of the view.
func (s *state) list() {
	chosen := ""
	if s.cursor > 0 && s.cursor < len(s.items) {
		chosen = s.items[s.cursor].key
	}
	t := tables{s.shown, s.only}
	s.whole = t.whole()
	if s.view == stackView {
		s.stack.samples = t.ofStack(s.of, s.stack.frames)
	}
	if s.view == flameView {
		s.flame.show(t.graph(), s.filter)
		return
	}
	s.items = s.matching(s.all(t))
	s.cursor = min(s.cursor, max(len(s.items)-1, 0))
	for i, item := range s.items {
		if chosen != "" && item.key == chosen {
			s.cursor = i
		}
	}
}

// matching returns the items that contain the filter, ignoring case.
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

// turnTo switches to another view.
func (s *state) turnTo(v view) {
	s.view, s.cursor, s.first, s.filter, s.items = v, 0, 0, "", nil
	s.list()
}

// press handles a key.
func (s *state) press(k terminal.Key) {
	switch {
	case s.typing:
		s.typed(k)
		return
	case s.helping && k != 'q':
		s.helping = false
		return
	case s.view == flameView && s.pressFlame(k):
		return
	}
	switch k {
	case 'q':
		s.quit = true
	case '?':
		s.helping = true
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
		if s.view != functionsView {
			s.turnTo(functionsView)
		}
		s.list()
	case 'p':
		s.only = process{}
		s.turnTo(processesView)
	case 'f':
		s.turnTo(flameView)
	case '/':
		s.typing = true
	case ' ':
		s.paused = !s.paused
		if !s.paused {
			s.refresh()
		}
	}
}

// pressFlame handles a key of the flame graph, and reports whether it is one.
func (s *state) pressFlame(k terminal.Key) bool {
	f := &s.flame
	switch k {
	case terminal.Up, terminal.Down, terminal.Left, terminal.Right, terminal.Home:
		f.move(k)
	case terminal.PageUp, terminal.PageDown:
		for range s.page {
			f.move(map[terminal.Key]terminal.Key{terminal.PageUp: terminal.Up, terminal.PageDown: terminal.Down}[k])
		}
	case terminal.Enter:
		f.zoomed = f.selected
	case 'i':
		f.upward = !f.upward
	case 'a':
		f.short = !f.short
	case 'n':
		f.step(1)
	case 'N':
		f.step(-1)
	default:
		return false
	}
	return true
}

// typed handles a key while the user types the filter.
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

// back returns to the previous view.
func (s *state) back() {
	switch {
	case s.filter != "":
		s.filter = ""
		s.list()
	case s.view == flameView && s.flame.zoomed != 0:
		s.flame.zoomed = 0
	case s.view == stackView:
		s.turnTo(stacksView)
	case s.view == stacksView, s.view == processesView, s.view == flameView:
		s.turnTo(functionsView)
	case s.only != process{}:
		s.turnTo(processesView)
		s.only = process{}
		s.list()
	}
}
