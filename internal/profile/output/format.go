// Package output writes profiles in the supported formats, to a file, which appears
// complete or not at all, or to a stream.
package output

import (
	"cmp"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/shortname"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/folded"
	"fulgur/internal/profile/encode/otlp"
	"fulgur/internal/profile/encode/pprof"
	"fulgur/internal/profile/encode/speedscope"
	"fulgur/internal/profile/encode/text"
)

// Options selects data to write in addition to names and values, if the format supports
// it.
type Options struct {
	// Annotate marks kernel frames with "_[k]" and inlined ones with "_[i]";
	// Delimited separates kernel and user frames.
	Annotate, Delimited bool
	// Inverted puts callees below their callers in flame graphs.
	Inverted bool
	// Screen limits text.
	Screen text.Screen
	// Width is the width of pictures in pixels; 0 means the default.
	Width int
	// ShortNames writes the short names of functions, see package shortname. Flame graphs
	// show the whole name of a box under the pointer.
	ShortNames bool
	// Native counts each stack for its leaf in the tables of pages, even if that is an interpreter's
	// function.
	Native bool
	// System is set if all processes were profiled. They are then shown separately.
	System bool
	// Source returns the text of a source file; nil means none.
	Source func(file string) (text string, ok bool)
	// Resource has attributes of this machine for OTLP.
	Resource map[string]string
}

// Format is an output format.
type Format struct {
	// Name is the name for users, and Endings the file name endings, the usual one first.
	Name    string
	Endings []string
	// reader is the program that reads the format, if its ending does not say so.
	reader string
	// write writes the profile. value is the index of the value to write in formats with
	// a single value.
	write func(w io.Writer, p *profile.Profile, o Options, value int) error
	// writeTimes writes a recording with its times; nil for formats without times.
	writeTimes func(w io.Writer, p *profile.Profile, line *profile.Timeline, o Options, value int) error
	// onRequest is set if times make the output larger and must be requested.
	onRequest bool
	// keeps says what the format can hold besides stacks of functions with amounts of one value.
	keeps keeps
}

// keeps is what a format can hold. A conversion to it leaves out the rest, or says that it is
// missing.
type keeps struct {
	values    bool // all values of a profile, rather than a single one
	negatives bool // negative amounts, such as those of comparisons that pprof writes
	units     bool // any unit; the others get times in nanoseconds and sizes in bytes
	labels    bool // the labels of the running code
	owners    bool // the containers, pods and units of processes, even without groups
}

// sent is the format that is sent to URLs.
const sent = "otlp"

var formats = []Format{
	{Name: "text", Endings: []string{".txt"}, keeps: keeps{negatives: true}, write: func(w io.Writer, p *profile.Profile, o Options, value int) error {
		return text.Write(w, p, text.Options{Annotate: o.Annotate, Delimited: o.Delimited, Value: value, Screen: o.Screen})
	}},
	{Name: "folded", Endings: []string{".folded"}, keeps: keeps{negatives: true}, write: func(w io.Writer, p *profile.Profile, o Options, value int) error {
		return folded.Write(w, p, folded.Options{Annotate: o.Annotate, Delimited: o.Delimited, Value: value})
	}},
	{Name: "html", Endings: []string{".html", ".htm"}, keeps: keeps{values: true}, write: func(w io.Writer, p *profile.Profile, o Options, value int) error {
		return flame.WriteHTML(w, p, flame.Compare(p, flame.Options{Value: value, Inverted: o.Inverted, ShortNames: o.ShortNames, Native: o.Native}))
	}, onRequest: true, writeTimes: func(w io.Writer, p *profile.Profile, line *profile.Timeline, o Options, value int) error {
		return flame.WriteHTML(w, p, flame.Options{Value: value, Inverted: o.Inverted, ShortNames: o.ShortNames, Native: o.Native, Times: line})
	}},
	{Name: "svg", Endings: []string{".svg"}, write: func(w io.Writer, p *profile.Profile, o Options, value int) error {
		return flame.WriteSVG(w, p, flame.Compare(p, flame.Options{Width: o.Width, Value: value, Inverted: o.Inverted, ShortNames: o.ShortNames}))
	}},
	{Name: "pprof", Endings: []string{".pb.gz", ".pprof", ".prof"}, keeps: keeps{values: true, negatives: true, units: true, labels: true}, write: func(w io.Writer, p *profile.Profile, o Options, _ int) error {
		return pprof.Write(w, p, pprof.Options{System: o.System})
	}},
	{Name: sent, Endings: []string{".otlp"}, reader: "OpenTelemetry", keeps: keeps{values: true, negatives: true, units: true, labels: true, owners: true}, write: func(w io.Writer, p *profile.Profile, o Options, _ int) error {
		return otlp.Write(w, p, otlp.Options{Resource: o.Resource})
	}},
	{Name: "otlp-json", Endings: []string{".otlp.json"}, reader: "OpenTelemetry", keeps: keeps{values: true, negatives: true, units: true, labels: true, owners: true}, write: func(w io.Writer, p *profile.Profile, o Options, _ int) error {
		return otlp.WriteJSON(w, p, otlp.Options{Resource: o.Resource})
	}},
	{Name: "firefox", Endings: []string{".json.gz"}, reader: "Firefox Profiler", keeps: keeps{values: true, negatives: true}, write: func(w io.Writer, p *profile.Profile, o Options, _ int) error {
		return firefox.WriteProfile(w, p, firefox.Options{Source: o.Source})
	}, writeTimes: func(w io.Writer, _ *profile.Profile, t *profile.Timeline, o Options, _ int) error {
		return firefox.Write(w, t, firefox.Options{Source: o.Source})
	}},
	{Name: "speedscope", Endings: []string{".speedscope.json"}, keeps: keeps{values: true, units: true}, write: func(w io.Writer, p *profile.Profile, _ Options, _ int) error {
		return speedscope.Write(w, p)
	}},
}

// AllValues reports whether the format supports all values of a profile, rather than a
// single one.
func (f Format) AllValues() bool { return f.keeps.values }

// HasNegative reports whether the format has a place for negative amounts, such as those of
// comparisons that pprof writes.
func (f Format) HasNegative() bool { return f.keeps.negatives }

// HasLabels reports whether the format has a place for the labels of the running code.
func (f Format) HasLabels() bool { return f.keeps.labels }

// HasOwners reports whether the format has a place for the containers, pods and units of
// processes even without groups.
func (f Format) HasOwners() bool { return f.keeps.owners }

// Allow returns a usage error if the format does not support o.
func (f Format) Allow(o Options) error {
	if o.Inverted && f.Name != "html" && f.Name != "svg" {
		return usage.Errorf("only flame graphs can be inverted: use an output name ending in .html or .svg, or choose a format with %s", usage.Format)
	}
	if o.Width != 0 && f.Name != "svg" {
		return usage.Errorf("only pictures have a width: use an output name ending in .svg, or choose a format with %s", usage.Format)
	}
	return nil
}

// HasTimes reports whether the format has times of events: always, or only if they are
// requested.
func (f Format) HasTimes(requested bool) bool {
	return f.writeTimes != nil && (requested || !f.onRequest)
}

// Choose returns the format for path: by name if it is not empty, otherwise by the path's
// ending. A stream without an ending gets text, and a URL gets OTLP, the only format that
// is sent. Errors are usage errors.
func Choose(path, name string) (Format, error) {
	if IsURL(path) {
		if name != "" && name != sent {
			return Format{}, usage.Errorf("the format %q is not sent to a URL: only %s is", name, sent)
		}
		name = sent
	}
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
		return Format{}, usage.Errorf("unknown format %q: choose %s", name, plain.Or(Names()))
	}
	return Format{}, usage.Errorf("unknown ending of %q: use one of %s, or choose a format with %s", path, strings.Join(Endings(), ", "), usage.Format)
}

// SplitEnding splits a path before the ending that names its format, or else before its last extension.
func SplitEnding(path string) (stem, ending string) {
	longest := ""
	for _, f := range formats {
		for _, e := range f.Endings {
			if strings.HasSuffix(path, e) && filepath.Base(path) != e && len(e) > len(longest) {
				longest = e
			}
		}
	}
	ending = cmp.Or(longest, filepath.Ext(path))
	return strings.TrimSuffix(path, ending), ending
}

// Names lists the formats, or those of some names, by name.
func Names(of ...string) (names []string) {
	for _, f := range formats {
		if len(of) == 0 || slices.Contains(of, f.Name) {
			names = append(names, f.Name)
		}
	}
	return names
}

// Endings lists the usual endings of the formats, or of those with some names, for users.
func Endings(of ...string) (endings []string) {
	for _, f := range formats {
		if !slices.Contains(Names(of...), f.Name) {
			continue
		}
		ending := f.Endings[0]
		if f.reader != "" {
			ending += " (" + f.reader + ")"
		}
		endings = append(endings, ending)
	}
	return endings
}

// Write writes a profile, with its times if line has any, which requires
// [Format.HasTimes]. Formats with a single value write the one with index value.
func (f Format) Write(w io.Writer, p *profile.Profile, line *profile.Timeline, o Options, value int) error {
	if o.ShortNames && f.Name != "html" && f.Name != "svg" {
		p = p.Renamed(shortname.Of)
		if line != nil {
			named := *line
			named.Profile = line.Profile.Renamed(shortname.Of)
			line = &named
		}
	}
	if !f.keeps.units {
		p = p.InBase()
	}
	if !f.HasLabels() && p.Meta.Grouping != profile.GroupLabel {
		p = p.Unlabeled()
	}
	if line != nil {
		return f.writeTimes(w, p, line, o, value)
	}
	return f.write(w, p, o, value)
}
