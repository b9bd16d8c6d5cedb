// Package decode reads profiles that fulgur or other tools wrote: folded stacks,
// the text of perf script, bpftrace's maps of stacks, pprof's profiles and those
// of the Firefox Profiler. It knows them by what they begin with.
//
// All are untrusted: what does not fit a format is an error that says where.
package decode

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"fulgur/internal/profile"
)

// Format is a format that is read.
type Format string

// The formats that are read.
const (
	Folded     Format = "folded"
	PerfScript Format = "perf script"
	Bpftrace   Format = "bpftrace"
	Pprof      Format = "pprof"
	Firefox    Format = "firefox"
)

// Read reads a profile until ctx ends. name is used in errors. What exceeds the
// limits of package profile is cut and counted in the profile's losses, or an
// error.
func Read(ctx context.Context, r io.Reader, name string) (*profile.Profile, Format, error) {
	in, err := unpack(ctx, r)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	head, err := in.Peek(sniffed)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	format := sniff(head)
	p, err := read(ctx, in, format)
	if err != nil {
		return nil, format, fmt.Errorf("%s: read as %s: %w", name, format, err)
	}
	p.Meta.Converted = true
	return p, format, nil
}

func read(ctx context.Context, r *bufio.Reader, format Format) (*profile.Profile, error) {
	switch format {
	case Firefox:
		return readFirefox(ctx, r)
	case Pprof:
		return readPprof(ctx, r)
	case Bpftrace:
		return readBpftrace(r)
	case PerfScript:
		return readPerfScript(r)
	}
	return readFolded(r)
}

// sniff tells the format of what begins with head.
func sniff(head []byte) Format {
	text := bytes.TrimLeft(head, " \t\r\n")
	switch {
	case bytes.HasPrefix(text, []byte("{")):
		return Firefox
	case bytes.ContainsFunc(head, isBinary):
		return Pprof
	}
	if bpftraceMap.Match(head) { // perhaps after messages
		return Bpftrace
	}
	for line := range bytes.Lines(head) {
		switch line := string(bytes.TrimRight(line, "\r\n")); {
		case line == "" || line[0] == '#':
			continue
		case line[0] != '\t' && isHeader(line), isFrame(line):
			return PerfScript
		case isFolded(line):
			return Folded
		}
	}
	return Folded
}

// isBinary reports whether a character is one that no text has.
func isBinary(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\r\n\f\x1b", r) }

// lines reads text line by line.
type lines struct {
	r      *bufio.Reader
	most   int // bytes of a line
	number int
	buf    []byte
}

// next returns the next line without its end, which is valid until the one
// after; ok is false at the end of the text.
func (l *lines) next() (line string, ok bool, err error) {
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		l.buf = append(l.buf, part...)
		if len(l.buf) > l.most {
			return "", false, fmt.Errorf("line %d: more than %d bytes", l.number+1, l.most)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(l.buf) == 0:
			return "", false, nil
		case err != nil && !errors.Is(err, io.EOF):
			return "", false, err
		}
		l.number++
		return string(bytes.TrimRight(l.buf, "\r\n")), true, nil
	}
}

func (l *lines) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %s", l.number, fmt.Sprintf(format, args...))
}
