package offline

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/shortname"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/folded"
	"fulgur/internal/profile/encode/text"
	"fulgur/internal/profile/filter"
	"fulgur/internal/profile/output"
)

// DiffOptions describe a comparison of two profiles.
type DiffOptions struct {
	// Base and New are the files to read, in any format that [Convert]
	// reads. One of them may be "-", standard input.
	Base, New string
	// Value is the type of the value to compare; empty means the first that
	// both have and that is not 0 in both.
	Value string
	// Filters select samples, and leave out frames.
	Filters filter.List
	// Symfs is a directory with a copy of the measured system's files, or "".
	Symfs string
	// Unit is the unit of folded stacks that state none, such as "us"; see
	// [profile.ParseUnit]. Empty means counts.
	Unit string
	// Normalize scales the base so that both have the same total.
	Normalize bool
	// Functions is the number of functions in the table, 0 for all.
	Functions int
	// Inverted draws callees below their callers in flame graphs.
	Inverted bool
	// Width is the width of pictures in pixels; 0 means the default.
	Width int

	// Output is the file to write; "-" or empty means Stdout. Format is its
	// format ("text", "folded", "html", "svg"); empty derives it from
	// Output's ending, or means text.
	Output, Format string
	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// ShortNames writes the short names of functions.
	ShortNames bool
	// Columns is the width of the terminal, 0 if Stdout is none.
	Columns int
	// Quiet suppresses warnings.
	Quiet bool

	types []profile.ValueType // the compared one
	base  profile.Meta        // of the base
}

// diffFormat is a format of a comparison.
type diffFormat struct {
	write func(io.Writer, *profile.Profile, *DiffOptions) error
	// amounts is set if the format compares amounts, so that [DiffOptions.Normalize] scales the
	// base. The others compare shares of either profile.
	amounts bool
}

var diffFormats = map[string]diffFormat{
	"text": {write: func(w io.Writer, p *profile.Profile, o *DiffOptions) error {
		c := text.CompareOptions{Functions: o.Functions, Shares: o.Normalize, Value: o.types[0].Type}
		if output.IsStdout(o.Output) {
			c.Columns = o.Columns
		}
		return text.Compare(w, o.named(p), c)
	}},
	"folded": {amounts: true, write: func(w io.Writer, p *profile.Profile, o *DiffOptions) error {
		return folded.Write(w, o.named(p), folded.Options{Compare: true})
	}},
	"html": {write: func(w io.Writer, p *profile.Profile, o *DiffOptions) error { return o.draw(w, p, flame.WriteHTML) }},
	"svg": {amounts: true, write: func(w io.Writer, p *profile.Profile, o *DiffOptions) error {
		return o.draw(w, p, flame.WriteSVG)
	}},
}

// ComparisonFormats lists the formats of comparisons by name.
func ComparisonFormats() []string { return output.Names(slices.Collect(maps.Keys(diffFormats))...) }

// named returns p with the names to write in text.
func (o *DiffOptions) named(p *profile.Profile) *profile.Profile {
	if o.ShortNames {
		return p.Renamed(shortname.Of)
	}
	return p
}

// draw draws a comparison as a flame graph.
func (o *DiffOptions) draw(w io.Writer, p *profile.Profile, write func(io.Writer, *profile.Profile, flame.Options) error) error {
	base, changed := p.Only(0), p.Only(1)
	base.ValueTypes, changed.ValueTypes = o.types, o.types
	base.Meta = o.base
	return write(w, changed, flame.Options{Title: o.Base + " → " + o.New, Base: base, Inverted: o.Inverted, Width: o.Width, ShortNames: o.ShortNames})
}

// Diff writes how two profiles differ. The exit code is 0, 2 with a usage
// error, or 1 with another one.
func Diff(ctx context.Context, o DiffOptions) (exitCode int, err error) {
	if err := checkSymfs(o.Symfs); err != nil {
		return 2, err
	}
	f, err := output.Choose(o.Output, o.Format)
	if err != nil {
		return 2, err
	}
	format, ok := diffFormats[f.Name]
	if !ok {
		return 2, usage.Errorf("a comparison cannot be written as %s: choose %s", f.Name, plain.Or(ComparisonFormats()))
	}
	if err := f.Allow(output.Options{Inverted: o.Inverted, Width: o.Width}); err != nil {
		return 2, err
	}
	if o.Base == "-" && o.New == "-" {
		return 2, usage.Errorf("only one of the two profiles can be standard input")
	}
	var sides [2]*profile.Profile
	var formats [2]decode.Format
	for i, path := range []string{o.Base, o.New} {
		if sides[i], formats[i], err = readStated(ctx, path, o.Symfs, o.Unit, warnOn(o.Stderr, o.Quiet)); err != nil {
			return 1, output.OrInterrupted(ctx, err)
		}
	}
	// The text of folded stacks does not tell tasks from functions, so its reader may decide differently.
	if both := [2]decode.Format{decode.Folded, decode.Folded}; formats == both && namesTasks(sides[0]) != namesTasks(sides[1]) {
		for i, p := range sides {
			if sides[i], err = decode.WithoutTasks(p); err != nil {
				return 1, err
			}
		}
	}
	for i, p := range sides {
		sides[i] = filtered(p, o.Filters)
	}
	value := comparedValue(o.Value, sides[0], sides[1])
	var values [2]int
	for i, p := range sides {
		if values[i], err = chooseValue(p, value); err != nil {
			return 2, err
		}
	}
	a, b := sides[0].ValueTypes[values[0]], sides[1].ValueTypes[values[1]]
	if a.Unit != b.Unit {
		return 2, usage.Errorf("%s has %s and %s has %s: choose the value to compare with %s",
			o.Base, strings.TrimSpace(a.Type+" "+a.Unit), o.New, strings.TrimSpace(b.Type+" "+b.Unit), usage.Value)
	}
	if o.Value == "" {
		warnEvents(sides[1], values[1], warnOn(o.Stderr, o.Quiet))
	}
	o.types, o.base = []profile.ValueType{b}, sides[0].Meta
	out, err := output.Create(ctx, o.Output, o.Stdout)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()
	err = output.Until(ctx, out, func(w io.Writer) error {
		base, changed := sides[0].Only(values[0]), sides[1].Only(values[1])
		return format.write(w, profile.Diff(base, changed, o.Normalize && format.amounts), &o)
	})
	if err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	if err := out.Commit(); err != nil {
		return 1, err
	}
	return 0, nil
}

// namesTasks reports whether a task has a name.
func namesTasks(p *profile.Profile) bool {
	return slices.ContainsFunc(p.Tasks, func(t profile.Task) bool { return t.Comm != "" })
}
