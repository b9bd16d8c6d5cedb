// Package output has the formats that a profile can be written in, and the places
// where it can go: a file, which appears whole or not at all, or a stream.
package output

import (
	"io"
	"slices"
	"strings"

	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/folded"
	"fulgur/internal/profile/encode/pprof"
	"fulgur/internal/profile/encode/speedscope"
	"fulgur/internal/profile/encode/text"
)

// Options say what is written beside names and values, where a format has room for
// it.
type Options struct {
	// Annotate marks kernel frames with "_[k]" and inlined ones with "_[i]";
	// Delimited separates kernel and user frames.
	Annotate, Delimited bool
	// Inverted lets callees hang below their callers in flame graphs.
	Inverted bool
	// System says that the profile is of all processes, which are then told apart.
	System bool
	// Source returns the text of a source file; nil if none is wanted.
	Source func(file string) (text string, ok bool)
}

// A Format is one way to write a profile.
type Format struct {
	// Name is what users call it, and Endings those of its files.
	Name    string
	Endings []string
	// write writes the value of that index, where it does not write all.
	write func(w io.Writer, p *profile.Profile, o Options, value int) error
	// inTime writes a recording with its times; nil for formats that have none.
	inTime func(io.Writer, *profile.Timeline, Options) error
}

var formats = []Format{
	{Name: "text", Endings: []string{".txt"}, write: func(w io.Writer, p *profile.Profile, o Options, value int) error {
		return text.Write(w, p, text.Options{Annotate: o.Annotate, Delimited: o.Delimited, Value: value})
	}},
	{Name: "folded", Endings: []string{".folded"}, write: func(w io.Writer, p *profile.Profile, o Options, value int) error {
		return folded.Write(w, p, folded.Options{Annotate: o.Annotate, Delimited: o.Delimited, Value: value})
	}},
	{Name: "html", Endings: []string{".html", ".htm"}, write: func(w io.Writer, p *profile.Profile, o Options, value int) error {
		return flame.WriteHTML(w, p, flame.Options{Value: value, Inverted: o.Inverted})
	}},
	{Name: "svg", Endings: []string{".svg"}, write: func(w io.Writer, p *profile.Profile, o Options, value int) error {
		return flame.WriteSVG(w, p, flame.Options{Value: value, Inverted: o.Inverted})
	}},
	{Name: "pprof", Endings: []string{".pb.gz", ".pprof", ".prof"}, write: func(w io.Writer, p *profile.Profile, o Options, _ int) error {
		return pprof.Write(w, p, pprof.Options{System: o.System})
	}},
	{Name: "firefox", Endings: []string{".json.gz"}, write: func(w io.Writer, p *profile.Profile, o Options, _ int) error {
		return firefox.WriteProfile(w, p, firefox.Options{Source: o.Source})
	}, inTime: func(w io.Writer, t *profile.Timeline, o Options) error {
		return firefox.Write(w, t, firefox.Options{Source: o.Source})
	}},
	{Name: "speedscope", Endings: []string{".speedscope.json"}, write: func(w io.Writer, p *profile.Profile, _ Options, _ int) error {
		return speedscope.Write(w, p)
	}},
}

// AllValues reports whether the format has room for all values of a profile;
// others have one.
func (f Format) AllValues() bool {
	switch f.Name {
	case "html", "pprof", "firefox", "speedscope":
		return true
	}
	return false
}

// Allow returns an error of usage if o asks for what cannot be done in the format.
func (f Format) Allow(o Options) error {
	if o.Inverted && f.Name != "html" && f.Name != "svg" {
		return usage.Errorf("only flame graphs can be inverted: use an output name ending in .html or .svg, or add --format html")
	}
	return nil
}

// HasTimes reports whether the format has room for when things happened.
func (f Format) HasTimes() bool { return f.inTime != nil }

// Choose returns the format for what is written to path: by name if that is given,
// else by the path's ending, which a stream need not have: that gets text. Errors are those of usage.
func Choose(path, name string) (Format, error) {
	for _, f := range formats {
		if name == f.Name || name == "" && slices.ContainsFunc(f.Endings, func(e string) bool {
			return strings.HasSuffix(path, e)
		}) {
			return f, nil
		}
	}
	if name == "" && IsStream(path) {
		return formats[0], nil
	}
	if name != "" {
		return Format{}, usage.Errorf("unknown format %q: choose %s", name, Names())
	}
	return Format{}, usage.Errorf("unknown ending of %q: use one of %s, or choose a format with --format", path, endings())
}

// Names lists the formats by name, for help texts.
func Names() string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

func endings() string {
	var all []string
	for _, f := range formats {
		all = append(all, f.Endings...)
	}
	return strings.Join(all, " ")
}

// Write writes a profile, with its times if line has them, which takes a format
// that [Format.HasTimes]. Formats with room for one value write that of an index.
func (f Format) Write(w io.Writer, p *profile.Profile, line *profile.Timeline, o Options, value int) error {
	if line != nil {
		return f.inTime(w, line, o)
	}
	return f.write(w, p, o, value)
}
