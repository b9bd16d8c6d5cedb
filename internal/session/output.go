package session

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"fulgur/internal/encode/firefox"
	"fulgur/internal/encode/flame"
	"fulgur/internal/encode/folded"
	"fulgur/internal/encode/pprof"
	"fulgur/internal/encode/speedscope"
	"fulgur/internal/encode/text"
	"fulgur/internal/profile"
	"fulgur/internal/target"
	"fulgur/internal/usage"
)

// A format is one way to write a profile.
type format struct {
	name    string
	endings []string
	// write writes the value of that index, where it does not write all.
	write func(w io.Writer, p *profile.Profile, o *Options, value int) error
	// inTime writes a recording with its times; nil for formats that have none.
	inTime func(io.Writer, *profile.Timeline, *Options) error
}

var formats = []format{
	{name: "text", endings: []string{".txt"}, write: func(w io.Writer, p *profile.Profile, o *Options, value int) error {
		return text.Write(w, p, text.Options{Annotate: o.Annotate, Delimited: o.Delimited, Value: value})
	}},
	{name: "folded", endings: []string{".folded"}, write: func(w io.Writer, p *profile.Profile, o *Options, value int) error {
		return folded.Write(w, p, folded.Options{Annotate: o.Annotate, Delimited: o.Delimited, Value: value})
	}},
	{name: "html", endings: []string{".html", ".htm"}, write: func(w io.Writer, p *profile.Profile, _ *Options, value int) error {
		return flame.WriteHTML(w, p, flame.Options{Value: value})
	}},
	{name: "svg", endings: []string{".svg"}, write: func(w io.Writer, p *profile.Profile, _ *Options, value int) error {
		return flame.WriteSVG(w, p, flame.Options{Value: value})
	}},
	{name: "pprof", endings: []string{".pb.gz", ".pprof", ".prof"}, write: func(w io.Writer, p *profile.Profile, o *Options, _ int) error {
		return pprof.Write(w, p, pprof.Options{System: o.Target.Scope == target.System})
	}},
	{name: "firefox", endings: []string{".json.gz"}, write: func(w io.Writer, p *profile.Profile, o *Options, _ int) error {
		return firefox.WriteProfile(w, p, firefox.Options{Source: o.Source})
	}, inTime: func(w io.Writer, t *profile.Timeline, o *Options) error {
		return firefox.Write(w, t, firefox.Options{Source: o.Source})
	}},
	{name: "speedscope", endings: []string{".speedscope.json"}, write: func(w io.Writer, p *profile.Profile, _ *Options, _ int) error {
		return speedscope.Write(w, p)
	}},
}

// allValues reports whether the format has room for all values of a profile;
// others have one.
func (f format) allValues() bool {
	switch f.name {
	case "html", "pprof", "firefox", "speedscope":
		return true
	}
	return false
}

// chooseFormat returns the format that o asks for: by name, else by the
// output's ending, else text on a stream.
func chooseFormat(o *Options) (format, error) {
	if o.Format == "" && (o.Output == "" || o.Output == "-" || strings.HasPrefix(o.Output, "/dev/")) {
		return formats[0], nil
	}
	for _, f := range formats {
		if o.Format == f.name || o.Format == "" && slices.ContainsFunc(f.endings, func(e string) bool {
			return strings.HasSuffix(o.Output, e)
		}) {
			return f, nil
		}
	}
	if o.Format != "" {
		return format{}, usage.Errorf("unknown format %q; known are %s", o.Format, FormatNames())
	}
	return format{}, usage.Errorf("the ending of %q names no format; known are %s; or name one with --format", o.Output, endings())
}

// inTime reports whether the format that o asks for has room for times.
func (o *Options) inTime() bool {
	f, err := chooseFormat(o)
	return err == nil && f.inTime != nil
}

// allValues reports whether the format that o asks for has room for all values.
func (o *Options) allValues() bool {
	f, err := chooseFormat(o)
	return err == nil && f.allValues()
}

// FormatNames lists the formats by name, for help texts.
func FormatNames() string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

func endings() string {
	var all []string
	for _, f := range formats {
		all = append(all, f.endings...)
	}
	return strings.Join(all, " ")
}

// encode writes the profile to its output, which appears whole or not at all: with
// its times, if line has them.
func encode(out output, f format, p *profile.Profile, line *profile.Timeline, o *Options, value int) error {
	write := func() error { return f.write(out, p, o, value) }
	if line != nil {
		write = func() error { return f.inTime(out, line, o) }
	}
	if err := write(); err != nil {
		return err
	}
	return out.Commit()
}

// output is where a profile goes; see [fulgur/internal/atomicfile].
type output interface {
	io.Writer
	Commit() error
	Abort() error
}

// stream is an output that cannot be taken back.
type stream struct{ w io.Writer }

func (s stream) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	if err != nil {
		err = fmt.Errorf("write standard output: %w", err)
	}
	return n, err
}

func (stream) Commit() error { return nil }
func (stream) Abort() error  { return nil }
