package top

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/ui/terminal"
)

func newState(windows ...*profile.Profile) *state {
	s := newScreen(Options{Title: "whole system", Windows: 3})
	for _, w := range windows {
		s.add(w)
	}
	return s
}

// screen returns the text of a screen, with highlighted lines marked.
func screen(s *state, width, height int) string {
	var b strings.Builder
	for _, l := range s.render(width, height) {
		b.WriteString(map[terminal.Style]string{terminal.Normal: "  ", terminal.Bold: "* ", terminal.Inverse: "> "}[l.Style])
		for _, span := range l.Spans {
			if span.Style == terminal.Inverse {
				span.Text = strings.NewReplacer("[", "<", "]", ">", "|", "!").Replace(span.Text)
			}
			l.Text += span.Text
		}
		b.WriteString(strings.TrimRight(l.Text, " ") + "\n")
	}
	return b.String()
}

func press(s *state, keys ...terminal.Key) {
	for _, k := range keys {
		s.press(k)
	}
}

func write(s *state, text string) {
	for _, r := range text {
		s.press(terminal.Key(r))
	}
}

// lay lays the boxes out as on a screen, so that keys move between them.
func lay(s *state) { s.render(100, 24) }

func TestScreens(t *testing.T) {
	for name, act := range map[string]func(*state){
		"functions":  func(*state) {},
		"total":      func(s *state) { press(s, 't', terminal.Down, terminal.Down) },
		"processes":  func(s *state) { press(s, 'p') },
		"process":    func(s *state) { press(s, 'p', terminal.Down, terminal.Enter) },
		"stacks":     func(s *state) { press(s, 't', terminal.Down, terminal.Enter) },
		"stack":      func(s *state) { press(s, terminal.Enter, terminal.Enter) },
		"typing":     func(s *state) { write(s, "/LIBC") },
		"filtered":   func(s *state) { write(s, "/handle"); press(s, terminal.Enter) },
		"no-match":   func(s *state) { write(s, "/nothing of it") },
		"paused":     func(s *state) { press(s, ' '); s.add(encodetest.Threads()) },
		"ended":      func(s *state) { s.ended = true; press(s, terminal.End) },
		"keys":       func(s *state) { press(s, '?') },
		"flame":      func(s *state) { press(s, 'f') },
		"flame-keys": func(s *state) { press(s, 'f', '?') },
		"flame-search": func(s *state) {
			press(s, 'f')
			write(s, "/handle")
			lay(s)
			press(s, terminal.Enter, 'n')
		},
		"flame-zoom": func(s *state) {
			press(s, 'f')
			lay(s)
			press(s, terminal.Down, terminal.Right, terminal.Down, terminal.Down, terminal.Left, terminal.Right, terminal.Enter)
		},
		"flame-upward": func(s *state) {
			press(s, 'f', 'i', 'a')
			lay(s)
			press(s, terminal.Up, terminal.Up, terminal.Down)
		},
		"two-window": func(s *state) { s.add(encodetest.Typical()) },
	} {
		s := newState(encodetest.Typical())
		act(s)
		encodetest.Golden(t, name+".txt", []byte(screen(s, 100, 24)))
	}
	encodetest.Golden(t, "narrow.txt", []byte(screen(newState(encodetest.Typical()), 40, 10)))
	usual := newState(encodetest.Typical())
	press(usual, terminal.Enter, terminal.Enter)
	encodetest.Golden(t, "usual.txt", []byte(screen(usual, 80, 24)))
	encodetest.Golden(t, "waiting.txt", []byte(screen(newState(), 100, 6)))
	for name, width := range map[string]int{"flame-40.txt": 40, "flame-60.txt": 60, "flame-250.txt": 250} {
		s := newState(encodetest.Typical())
		press(s, 'f')
		encodetest.Golden(t, name, []byte(screen(s, width, 20)))
	}
	encodetest.Golden(t, "wide.txt", []byte(screen(newState(encodetest.Typical()), 250, 10)))
	encodetest.Golden(t, "60.txt", []byte(screen(newState(encodetest.Typical()), 60, 18)))
	encodetest.Golden(t, "empty.txt", []byte(screen(newState(encodetest.Empty()), 100, 6)))
}

// A screen has exactly the given number of lines and columns, and contains only
// printable characters.
func TestSizes(t *testing.T) {
	for _, p := range []*profile.Profile{encodetest.Hostile(), encodetest.Typical(), encodetest.Empty()} {
		for _, keys := range [][]terminal.Key{
			{}, {'p'}, {terminal.Enter}, {terminal.Enter, terminal.Enter}, {'p', terminal.Enter}, {'/', 0x202e, '<'}, {'?'},
			{'f'}, {'f', 'i', terminal.Up}, {'f', '/', 'e'}, {'f', '?'},
		} {
			s := newState(p)
			s.Colored = len(keys) == 1
			press(s, keys...)
			for _, size := range [][2]int{{100, 24}, {20, 5}, {300, 60}, {1, 1}, {3, 2}} {
				lines := s.render(size[0], size[1])
				if len(lines) != size[1] {
					t.Errorf("got %d lines, want %d", len(lines), size[1])
				}
				for _, l := range lines {
					for _, span := range l.Spans {
						l.Text += span.Text
					}
					if terminal.Width(l.Text) > size[0] {
						t.Errorf("got %q, wider than %d", l.Text, size[0])
					}
					for _, r := range l.Text {
						if !strconv.IsPrint(r) {
							t.Errorf("got unprintable %q in %q", r, l.Text)
						}
					}
				}
			}
		}
	}
}

// Only a limited number of windows is kept, and totals match them.
func TestWindows(t *testing.T) {
	s := newState()
	for range 10 {
		s.add(encodetest.Threads())
	}
	if len(s.windows) != 3 || s.whole != 30 {
		t.Errorf("got %d windows with %d samples, want 3 with 30", len(s.windows), s.whole)
	}
	press(s, ' ')
	for range 3 {
		s.add(encodetest.Typical())
	}
	if s.whole != 30 {
		t.Errorf("got %d samples during a pause, want 30", s.whole)
	}
	press(s, ' ')
	if s.whole != 300 {
		t.Errorf("got %d samples after the pause, want 300", s.whole)
	}
}

// The selected item stays selected when it moves.
func TestSelectionStays(t *testing.T) {
	s := newState(encodetest.Typical())
	press(s, terminal.Down, terminal.Down, terminal.Down)
	chosen := s.items[s.cursor].key
	press(s, 't')
	if s.items[s.cursor].key != chosen {
		t.Errorf("got %q selected, want %q", s.items[s.cursor].key, chosen)
	}
	s.add(encodetest.Threads())
	if s.items[s.cursor].key != chosen {
		t.Errorf("after another window: got %q selected, want %q", s.items[s.cursor].key, chosen)
	}
}

// The share of a shown stack refers to the shown windows.
func TestStackShare(t *testing.T) {
	s := newState(encodetest.Typical())
	press(s, terminal.Enter, terminal.Enter)
	if s.view != stackView || s.stack.samples == 0 {
		t.Fatalf("got view %d with %d samples, want the stacks", s.view, s.stack.samples)
	}
	for range 3 { // the first window is no longer shown
		s.add(encodetest.Threads())
	}
	if !strings.HasSuffix(s.subject(), ", 0.0%") {
		t.Errorf("stack in no window: got %s, want 0.0%%", s.subject())
	}
}

// Escape leads back to the first view.
func TestBack(t *testing.T) {
	s := newState(encodetest.Typical())
	begin := screen(s, 100, 24)
	press(s, 'p', terminal.Down, terminal.Enter, terminal.Enter, terminal.Enter)
	if s.view != stackView || s.only.pid == 0 {
		t.Fatalf("got view %d of %+v, want the stacks of a process", s.view, s.only)
	}
	for range 5 {
		press(s, terminal.Escape)
	}
	if got := screen(s, 100, 24); got != begin {
		t.Errorf("got\n%s\nwant the first screen\n%s", got, begin)
	}
	if press(s, 'q'); !s.quit {
		t.Error("q does not quit")
	}
}

func TestFilterKeys(t *testing.T) {
	s := newState(encodetest.Typical())
	write(s, "/qü")
	press(s, terminal.Backspace)
	if s.filter != "q" || s.quit || !s.typing {
		t.Errorf("got filter %q, quit %v; want q, false", s.filter, s.quit)
	}
	press(s, terminal.Clear, terminal.Backspace, terminal.Up)
	if s.filter != "" {
		t.Errorf("got filter %q, want none", s.filter)
	}
	write(s, "x")
	if press(s, terminal.Escape); s.filter != "" || s.typing {
		t.Errorf("got filter %q after escape, want none", s.filter)
	}
}

func TestWriteText(t *testing.T) {
	var out bytes.Buffer
	for _, p := range []*profile.Profile{encodetest.Typical(), encodetest.Hostile(), encodetest.Empty()} {
		if err := WriteText(&out, Options{Title: "whole system"}, p, 5); err != nil {
			t.Fatal(err)
		}
	}
	encodetest.Golden(t, "plain.txt", out.Bytes())
	if err := WriteText(encodetest.FullDisk{}, Options{Title: ""}, encodetest.Typical(), 5); !errors.Is(err, encodetest.ErrFullDisk) {
		t.Errorf("got error %v, want the writer's", err)
	}
}

func TestLosses(t *testing.T) {
	for want, l := range map[string]profile.Losses{
		"nothing lost":                            {profile.LossOverflows: 1},
		"1 sample lost":                           {profile.LossSamples: 1},
		"3 samples lost, 1 sample without stack":  {profile.LossSamples: 3, profile.LossTraces: 1},
		"3 samples lost, 1 sample without stack…": {profile.LossSamples: 3, profile.LossTraces: 1, profile.LossTruncatedUser: 1},
	} {
		if got := describe.Lost(l, describe.NounOf(nil, 0), shownLosses); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// With groups, the list of processes and the text show them, and Enter selects one. The flame graph
// begins with them.
func TestGroups(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	f := b.Push(0, b.Frame(profile.Frame{Kind: profile.KindUser, Function: b.Function(profile.Function{Name: "work"})}))
	for pid, set := range []profile.Labels{nil, {{Key: "kind", Value: "x\x1b"}}, {{Key: "kind", Value: "y"}}, {{Key: "kind", Value: "y"}}} {
		b.Add(profile.Sample{Stack: f, Task: b.Task(profile.Task{PID: 1 + pid, Comm: "server", Labels: b.Labels(set)}), CPU: -1, Values: []int64{int64(1 + pid)}})
	}
	p := b.Profile(profile.Meta{Grouping: profile.GroupLabel, GroupLabel: "kind"}, profile.Losses{})
	var out bytes.Buffer
	if err := WriteText(&out, Options{Title: "whole system"}, p, 2); err != nil {
		t.Fatal(err)
	}
	_, tables, _ := strings.Cut(out.String(), "\n")
	want := `  SAMPLES   SHARE  KIND
        7   70.0%  y
        2   20.0%  x\x1b
   SELF   TOTAL  FUNCTION                                                    MODULE
 100.0%  100.0%  work                                                        unknown

`
	if strings.ReplaceAll(tables, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("got\n%s\nwant\n%s", tables, want)
	}
	s := newScreen(Options{Windows: 1})
	s.add(p)
	s.press('p')
	s.press(terminal.Enter)
	if s.view != functionsView || s.whole != 7 || !strings.Contains(s.subject(), "of y") {
		t.Errorf("got %d samples in view %d, %q; want the 7 of a group", s.whole, s.view, s.subject())
	}
	s.press('f')
	var names []string
	for _, n := range s.flame.nodes {
		names = append(names, n.name)
	}
	if want := []string{"all", "y", "server", "work"}; !slices.Equal(names, want) {
		t.Errorf("got boxes %q, want %q", names, want)
	}
}

// The list of keys fits a terminal of 60 columns.
func TestKeysFit(t *testing.T) {
	for _, v := range []view{flameView, functionsView} {
		s := newState(encodetest.Typical())
		s.view = v
		for _, line := range s.keys() {
			if n := terminal.Width(line.Text); n > 60 {
				t.Errorf("got a line of %d columns: %q", n, line.Text)
			}
		}
	}
}
