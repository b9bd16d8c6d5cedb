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
}

// Run shows the profiles from windows until the user quits or ctx ends; neither is
// an error. When windows is closed, the measurement has ended, but the user can
// still explore the last data.
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

// WriteText writes a window as plain text: a heading and at most rows functions with
// the most self samples, followed by an empty line.
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
