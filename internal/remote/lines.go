package remote

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"fulgur/internal/message/plain"
)

// lines passes on text of another machine by lines that are safe to print. It is not safe for concurrent
// use, but what it writes to may be that of others.
type lines struct {
	to     io.Writer // gets whole lines, and updates of a line
	prefix string    // of each line
	// replace changes lines, nil if it does not.
	replace func(string) string
	// progress shows progress lines, see [fulgur/internal/capture/loop.ProgressLine]. Without it, they are
	// left out.
	progress bool
	// longest bounds a line in bytes, and most the number of lines if it is not 0. The rest is left out.
	longest, most int

	rest  []byte
	count int
	shown bool // a progress line
}

// The ends of a progress line, and what removes it.
const (
	progressBegin = "\r\x1b[K\x1b[?7l"
	progressEnd   = "\x1b[?7h"
	clearLine     = "\r\x1b[K"
)

// Write implements io.Writer.
func (l *lines) Write(text []byte) (int, error) {
	for rest := text; len(rest) > 0; {
		// In parts, so that a long line takes no more memory than its limit.
		n := min(len(rest), 4096)
		l.rest, rest = append(l.rest, rest[:n]...), rest[n:]
		if err := l.flush(); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}

// flush writes the complete lines.
func (l *lines) flush() error {
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if progress := bytes.Index(l.rest, []byte(progressEnd)); progress >= 0 && (end < 0 || progress < end) {
			text := string(l.rest[:progress])
			l.rest = l.rest[progress+len(progressEnd):]
			if err := l.show(text); err != nil {
				return err
			}
			continue
		}
		if end < 0 {
			if len(l.rest) > l.longest+len(clearLine)+1 { // the rest of the line will be cut
				l.rest = l.rest[:l.longest+len(clearLine)+1]
			}
			return nil
		}
		line := string(l.rest[:end])
		l.rest = l.rest[end+1:]
		if err := l.line(line); err != nil {
			return err
		}
	}
}

// line writes a line.
func (l *lines) line(text string) error {
	if l.count++; l.most != 0 && l.count > l.most {
		if l.count > l.most+1 {
			return nil
		}
		text = "more messages are left out"
	}
	text = strings.TrimPrefix(strings.TrimSuffix(text, "\r"), clearLine)
	if len(text) > l.longest {
		text = text[:l.longest] + "..."
	}
	fields := strings.Split(text, "\t") // a tab is safe
	for i, f := range fields {
		if f != "" {
			fields[i] = plain.Terminal(f)
		}
	}
	text = strings.Join(fields, "\t")
	if l.replace != nil {
		text = l.replace(text)
	}
	if err := l.clear(); err != nil {
		return err
	}
	_, err := io.WriteString(l.to, l.prefix+text+"\n")
	return err
}

// show updates the progress line.
func (l *lines) show(text string) error {
	i := strings.LastIndex(text, progressBegin)
	if !l.progress || i < 0 {
		return nil
	}
	text = text[i+len(progressBegin):]
	l.shown = true
	_, err := io.WriteString(l.to, progressBegin+plain.Terminal(text[:min(len(text), l.longest)])+progressEnd)
	return err
}

// clear removes the progress line.
func (l *lines) clear() error {
	if !l.shown {
		return nil
	}
	l.shown = false
	_, err := io.WriteString(l.to, clearLine)
	return err
}

// end writes the last line, if it has no end.
func (l *lines) end() error {
	rest := strings.TrimPrefix(string(l.rest), clearLine)
	l.rest = nil
	if rest == "" {
		return l.clear()
	}
	return l.line(rest)
}

// shared is a writer for several goroutines.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (s *shared) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(text)
}
