// Package top shows where time goes now: the functions and stacks with the most
// samples of the last windows, on a terminal that can be worked in, or as plain text
// for each window.
package top

import (
	"context"
	"fmt"
	"io"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/ui/terminal"
)

// Options say what is shown.
type Options struct {
	// Title names what is measured.
	Title string
	// Windows is how many of the last windows are shown together.
	Windows int
}

// Run shows the profiles that come on windows until the user quits or ctx ends,
// neither of which is an error. When windows is closed the measurement has ended, and
// what was seen can still be looked at.
func Run(ctx context.Context, t *terminal.Terminal, o Options, windows <-chan *profile.Profile) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys := t.Keys(ctx)
	s := &state{title: plain.Terminal(o.Title), last: o.Windows}
	for !s.quit {
		if err := t.Show(s.render(t.Size())); err != nil {
			return err
		}
		select {
		case p, ok := <-windows:
			if !ok {
				s.ended, windows = true, nil
				continue
			}
			s.add(p)
		case k, ok := <-keys:
			if !ok {
				return nil // the terminal is gone
			}
			s.press(k)
		case <-t.Resized():
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// WriteText writes what the screen would show of a window, for who has no terminal:
// a line on the window, and the functions with the most samples in themselves, as
// many as rows. An empty line ends it.
func WriteText(w io.Writer, title string, p *profile.Profile, rows int) error {
	const width = 100
	s := &state{title: plain.Terminal(title), last: 1}
	s.add(p)
	list := columns[functionsView]
	lines := []string{s.heading(), cells(list, headings(list), width)}
	for _, item := range s.items[:min(rows, len(s.items))] {
		lines = append(lines, cells(list, item.cells, width))
	}
	var text strings.Builder
	for _, l := range append(lines, "") {
		text.WriteString(strings.TrimRight(l, " ") + "\n")
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("write the hottest functions: %w", err)
	}
	return nil
}
