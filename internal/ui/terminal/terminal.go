// Package terminal shows a full screen of text on a terminal and reads its keys.
package terminal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Escape sequences of ECMA-48 and xterm that all current terminals support.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // the alternate screen, without the cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
	inverse     = "\x1b[7m"
	bold        = "\x1b[1m"
	plainText   = "\x1b[0m"
)

// Style is the appearance of a line.
type Style uint8

// The styles of lines.
const (
	Normal Style = iota
	Bold
	Inverse
)

// Line is a line of the screen. Its text must be safe to print and not wider than
// the screen; see [Fit].
type Line struct {
	Text  string
	Style Style
	// Spans, if any, are shown instead of Text.
	Spans []Span
}

// Span is a part of a line in a style of its own.
type Span struct {
	Text  string
	Style Style
	// Background is one of xterm's 256 colors, under black text; 0 means the terminal's
	// own colors.
	Background uint8
}

// write writes the span.
func (s Span) write(out *bufio.Writer) {
	var codes string
	switch s.Style {
	case Bold:
		codes = bold
	case Inverse:
		codes = inverse
	default:
	}
	if s.Background != 0 {
		codes += fmt.Sprintf("\x1b[38;5;16;48;5;%dm", s.Background)
	}
	out.WriteString(codes + s.Text)
	if codes != "" {
		out.WriteString(plainText)
	}
}

// Terminal is a terminal in full-screen mode.
type Terminal struct {
	in, out *os.File
	before  unix.Termios
	resized chan os.Signal
}

// Is reports whether a file is a terminal.
func Is(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Open switches the terminal out to full-screen mode, and reads keys from the
// terminal in one by one, without echo. Ctrl-C still sends a signal. The caller must
// call [Terminal.Close].
func Open(in, out *os.File) (*Terminal, error) {
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read keys of the terminal: %w", err)
	}
	t := &Terminal{in: in, out: out, before: *before, resized: make(chan os.Signal, 1)}
	keys := *before
	keys.Lflag &^= unix.ICANON | unix.ECHO
	keys.Iflag &^= unix.ICRNL | unix.IXON
	keys.Cc[unix.VMIN], keys.Cc[unix.VTIME] = 1, 0
	keys.Cc[unix.VSUSP] = 0 // Ctrl-Z would leave the shell on our screen
	if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &keys); err != nil {
		return nil, fmt.Errorf("read keys of the terminal: %w", err)
	}
	signal.Notify(t.resized, unix.SIGWINCH)
	if _, err := out.WriteString(enterScreen); err != nil {
		return nil, errors.Join(fmt.Errorf("write to the terminal: %w", err), t.Close())
	}
	return t, nil
}

// Close restores the terminal.
func (t *Terminal) Close() error {
	signal.Stop(t.resized)
	_, err := t.out.WriteString(leaveScreen)
	return errors.Join(err, unix.IoctlSetTermios(int(t.in.Fd()), unix.TCSETS, &t.before))
}

// Size returns the number of columns and lines, 80 and 24 if unknown.
func (t *Terminal) Size() (columns, lines int) { return Size(t.out) }

// Size returns the number of columns and lines of a terminal, 80 and 24 if unknown.
func Size(f *os.File) (columns, lines int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}

// Resized returns a channel that receives when the size may have changed.
func (t *Terminal) Resized() <-chan os.Signal { return t.resized }

// Show replaces the content of the screen. lines must not be more than the screen
// has.
func (t *Terminal) Show(lines []Line) error {
	out := bufio.NewWriter(t.out)
	out.WriteString(home)
	for i, l := range lines {
		if i > 0 {
			out.WriteString("\r\n")
		}
		spans := l.Spans
		if spans == nil {
			spans = []Span{{Text: l.Text, Style: l.Style}}
		}
		for _, s := range spans {
			s.write(out)
		}
		out.WriteString(clearLine)
	}
	out.WriteString(clearBelow)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// Keys returns a channel of pressed keys. It is closed when ctx or the terminal
// ends.
func (t *Terminal) Keys(ctx context.Context) <-chan Key {
	keys := make(chan Key)
	go func() {
		defer close(keys)
		buf := make([]byte, 256)
		for {
			// Poll, so that waiting for a key ends with ctx.
			fds := []unix.PollFd{{Fd: int32(t.in.Fd()), Events: unix.POLLIN}}
			if _, err := unix.Poll(fds, 100); err != nil && !errors.Is(err, unix.EINTR) || ctx.Err() != nil {
				return
			}
			if fds[0].Revents == 0 {
				continue
			}
			n, err := t.in.Read(buf)
			if err != nil || n == 0 {
				return
			}
			for _, k := range ParseKeys(buf[:n]) {
				select {
				case keys <- k:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return keys
}
