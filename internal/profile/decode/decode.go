// Package decode reads profiles written by fulgur or other tools: folded stacks, the
// output of perf script, bpftrace's maps of stacks, pprof profiles, OpenTelemetry's
// profiles, profiles of the Firefox Profiler and fulgur's own pages. It detects the format
// from the beginning of the input.
//
// All input is untrusted. Input that violates its format is an error with its position.
package decode

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"fulgur/internal/profile"
)

// Format is a supported format.
type Format string

// The supported formats.
const (
	Folded     Format = "folded"
	PerfScript Format = "perf script"
	Bpftrace   Format = "bpftrace"
	Pprof      Format = "pprof"
	OTLP       Format = "otlp"
	OTLPJSON   Format = "otlp-json"
	Firefox    Format = "firefox"
	Page       Format = "html"
)

// Decoded is a profile that was read.
type Decoded struct {
	Profile *profile.Profile
	Format  Format
	// Relative is set if the addresses of unnamed frames count from the lowest address of
	// their file, as all addresses in the Firefox Profiler's format do. Otherwise they are
	// addresses as in [profile.Frame].
	Relative bool
	// Times has the times of the samples, nil if they were not requested or are unknown.
	Times Times
}

// Times are the times of a profile's samples.
type Times interface {
	// Timeline returns the profile as a recording. p has its tables, and stack translates the
	// stacks of the decoded profile to p's.
	Timeline(p *profile.Profile, stack func(profile.StackID) profile.StackID) *profile.Timeline
}

// Options says what to read, and what a profile does not say.
type Options struct {
	// Times asks for the times of the samples.
	Times bool
	// Unit is the unit of folded stacks that state none, as [profile.ParseUnit] knows it, such as
	// "us": times are then values of the type "time". Empty means that they are counts.
	Unit string
}

// Read reads a profile until ctx is done. name is used in errors. Data that exceeds the limits
// of package profile is truncated and counted in the profile's losses, or is an error.
func Read(ctx context.Context, r io.Reader, name string) (*profile.Profile, Format, error) {
	d, err := ReadWith(ctx, r, name, Options{})
	return d.Profile, d.Format, err
}

// ReadWith reads a profile like [Read]. With an error, the result has at most the format.
func ReadWith(ctx context.Context, r io.Reader, name string, o Options) (Decoded, error) {
	in, format, err := detect(ctx, r)
	if err != nil {
		return Decoded{}, fmt.Errorf("%s: %w", name, err)
	}
	d := Decoded{Format: format}
	if readTimed := map[Format]func(context.Context, *bufio.Reader, bool) (Decoded, error){Firefox: readFirefox, Page: readPage}[d.Format]; readTimed != nil && o.Times {
		if d, err = readTimed(ctx, in, true); err == nil {
			err = d.Profile.Check()
		}
	} else {
		d.Profile, err = read(ctx, in, d.Format, o.Unit)
	}
	switch {
	case errors.As(err, new(*foreign)): // not of the format, as it turned out
		return Decoded{Format: d.Format}, fmt.Errorf("%s: %w", name, err)
	case err != nil:
		return Decoded{Format: d.Format}, fmt.Errorf("%s: read as %s: %w", name, d.Format, err)
	}
	return d, nil
}

// Detect returns the format of a profile by its beginning. An error says what the input is instead.
func Detect(ctx context.Context, r io.Reader) (Format, error) {
	_, format, err := detect(ctx, r)
	return format, err
}

// detect returns the contents of r and their format.
func detect(ctx context.Context, r io.Reader) (*bufio.Reader, Format, error) {
	in, err := unpacked(ctx, r)
	if err != nil {
		return nil, "", err
	}
	head, err := in.Peek(sniffed)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, "", err
	}
	if len(head) == 0 {
		return nil, "", errors.New("is empty")
	}
	format, err := sniff(head)
	return in, format, err
}

// read reads a profile and checks it. A [profile.ErrInvalid] is a bug of the decoder.
func read(ctx context.Context, r *bufio.Reader, format Format, unit string) (*profile.Profile, error) {
	p, err := readFormat(ctx, r, format, unit)
	if err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	return p, nil
}

func readFormat(ctx context.Context, r *bufio.Reader, format Format, unit string) (*profile.Profile, error) {
	switch format {
	case Firefox:
		d, err := readFirefox(ctx, r, false)
		return d.Profile, err
	case Page:
		d, err := readPage(ctx, r, false)
		return d.Profile, err
	case Pprof:
		return readPprof(ctx, r)
	case OTLP:
		return readOTLP(ctx, r)
	case OTLPJSON:
		return readOTLPJSON(ctx, r)
	case Bpftrace:
		return readBpftrace(r)
	case PerfScript:
		return readPerfScript(r)
	}
	return readFolded(r, unit)
}

// lines reads text line by line.
type lines struct {
	r      *bufio.Reader
	limit  int // maximum length of a line
	number int
	buf    []byte
}

// next returns the next line without its newline, which is valid until the next call. ok
// is false at the end of the text.
func (l *lines) next() (line string, ok bool, err error) {
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		l.buf = append(l.buf, part...)
		if len(l.buf) > l.limit {
			return "", false, fmt.Errorf("line %d: more than %d bytes", l.number+1, l.limit)
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
