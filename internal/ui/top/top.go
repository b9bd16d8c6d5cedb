// Package top shows the functions and stacks with the most samples in recent
// windows, on an interactive terminal or as plain text for each window.
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

// Options configure the display.
type Options struct {
	// Title describes the measurement.
	Title string
	// Windows is the number of recent windows to show together.
	Windows int
	// Whole means that the first window is the whole profile. Its flame graph is shown
	// first.
	Whole bool
	// Colored draws boxes with colors.
	Colored bool
	// Native counts each stack for its leaf, even if that is an interpreter's function.
	Native bool
}

// Run shows the profiles from windows until the user quits or ctx ends; neither is
// an error. When windows is closed, the measurement has ended, but the user can
// still explore the last data.
func Run(ctx context.Context, t *terminal.Terminal, o Options, windows <-chan *profile.Profile) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys := t.Keys(ctx)
	s := newScreen(o)
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
				return nil // the terminal has closed
			}
			s.press(k)
		case <-t.Resized():
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// newScreen returns a screen without windows.
func newScreen(o Options) *state {
	o.Title = plain.Terminal(o.Title)
	s := &state{Options: o}
	if o.Whole {
		s.turnTo(flameView)
	}
	return s
}

// Show shows the first value of a whole profile, until the user quits or ctx ends.
func Show(ctx context.Context, t *terminal.Terminal, o Options, p *profile.Profile) error {
	windows := make(chan *profile.Profile, 1)
	windows <- p
	close(windows)
	o.Windows, o.Whole = 1, true
	return Run(ctx, t, o, windows)
}

// WriteText writes a window as plain text: a heading, at most rows groups with the most samples if
// the profile has groups, and at most rows functions with the most samples of their own, followed by
// an empty line. Of the options, it uses the title and Native.
func WriteText(w io.Writer, o Options, p *profile.Profile, rows int) error {
	const width = 100
	s := newScreen(Options{Title: o.Title, Native: o.Native, Windows: 1})
	s.add(p)
	lines := []string{strings.Join(s.heading(), ", ")}
	for _, v := range []view{processesView, functionsView} {
		if v == processesView && !s.grouped() {
			continue
		}
		s.turnTo(v)
		list := s.columnsOf(v)
		lines = append(lines, cells(list, headings(list), width))
		for _, item := range s.items[:min(rows, len(s.items))] {
			lines = append(lines, cells(list, item.cells, width))
		}
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
