// Package offline works on stored profiles of fulgur and other profilers: it
// shows, reports, compares and converts them, and adds missing names.
package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"fulgur/internal/branches"
	"fulgur/internal/export/otlpclient"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/code"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/encode/text"
	"fulgur/internal/profile/filter"
	"fulgur/internal/profile/output"
	"fulgur/internal/profile/report"
	"fulgur/internal/symbols/symbolize"
)

// ConvertOptions describe a conversion: of a profile to another format, or of
// recorded branches to profiles for llvm-bolt.
type ConvertOptions struct {
	// Input is the file to read, "-" for standard input. Its format is
	// detected by its beginning.
	Input string
	// Output is the file to write, or the URL to send to; "-" or empty means Stdout. Format is the output's format,
	// "preagg" for llvm-bolt's; empty derives it from Output's ending.
	Output, Format string
	// Value is the type of the one value to write. Empty means all that the
	// format can hold, or the default one, or the first that is not 0.
	Value string
	// Unit is the unit of folded stacks that state none, such as "us"; see
	// [profile.ParseUnit]. Empty means counts.
	Unit string
	// Filters select samples, and leave out frames.
	Filters filter.List
	// By groups the samples; nil keeps the groups of the input.
	By *Groups
	// Times also keeps the times of samples of perf.data in a page.
	Times bool
	// Annotate marks kernel frames with "_[k]" and inlined ones with "_[i]" in
	// text.
	Annotate bool
	// Inverted draws callees below their callers in flame graphs.
	Inverted bool
	// Width is the width of pictures in pixels; 0 means the default.
	Width int
	// Screen limits text on Stdout, if it is a terminal.
	Screen text.Screen
	// Symfs is a directory with a copy of the measured system's files, or "".
	Symfs string
	// ShortNames writes the short names of functions.
	ShortNames bool
	// EmbedSources embeds the source files found on this machine in a
	// profile for the Firefox Profiler.
	EmbedSources bool
	// Resource has attributes of this machine for OTLP.
	Resource map[string]string

	// ProfileOptions are the options of profiles for llvm-bolt.
	branches.ProfileOptions

	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// Quiet suppresses the summary.
	Quiet bool
}

// Convert writes a profile in another format, or makes profiles for llvm-bolt
// from recorded branches. The exit code is 0, 2 with a usage error, or 1 with
// another one. If ctx ends early, nothing is written.
func Convert(ctx context.Context, o ConvertOptions) (exitCode int, err error) {
	if o.ChooseFormat(o.Output, o.Format) || o.AllBinaries && o.Format == "" {
		return o.convertBranches(ctx)
	}
	return o.convertProfile(ctx)
}

// convertBranches makes profiles for llvm-bolt.
func (o *ConvertOptions) convertBranches(ctx context.Context) (exitCode int, err error) {
	if o.Value != "" || o.By != nil || len(o.Filters) > 0 || o.Annotate || o.Inverted || o.Times || o.Width != 0 || o.ShortNames || o.EmbedSources || o.Symfs != "" {
		return 2, usage.Errorf("a profile for BOLT or clang cannot have a chosen value, groups, filters, times, annotations, an inverted graph, a width, short names, sources or files of %s", usage.Symfs)
	}
	return branches.Convert(ctx, branches.ConvertOptions{
		Input: o.Input, Output: o.Output, ProfileOptions: o.ProfileOptions,
		Stdout: o.Stdout, Stderr: o.Stderr, Quiet: o.Quiet,
	})
}

// convertProfile writes a profile in another format.
func (o *ConvertOptions) convertProfile(ctx context.Context) (exitCode int, err error) {
	format, err := o.profileFormat()
	if err == nil {
		err = checkSymfs(o.Symfs)
	}
	if err != nil {
		return 2, err
	}
	warn := warnOn(o.Stderr, o.Quiet)
	in, err := readInput(ctx, o.Input, o.Symfs, o.Unit, timesFor(o.Filters, o.times(format)), warn)
	if err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if o.Times {
		if err := in.hasTimes(); err != nil {
			return 2, err
		}
	}
	if err := in.filter(o.Input, o.Filters); err != nil {
		return exitCodeOf(ctx, err)
	}
	p := in.profile
	o.By.apply(p, warn)
	v, err := chooseValue(p, o.Value)
	if err != nil {
		return 2, err
	}
	if o.Value == "" && !format.AllValues() {
		warnEvents(p, v, warn)
	}
	if o.Value != "" || !format.AllValues() {
		p, v = p.Only(v), 0
	} else {
		v = report.First(p, v)
	}
	if missing := describe.Negative(p, shown(p, v, format)...); missing != "" && !format.HasNegative() {
		warn(errors.New(missing + " are " + describe.NegativeEffect))
	}
	out, err := otlpclient.Create(ctx, o.Output, o.Stdout, func(text string) { warn(errors.New(text)) })
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()
	opts := output.Options{Annotate: o.Annotate, Inverted: o.Inverted, Width: o.Width, ShortNames: o.ShortNames, Resource: o.Resource}
	if output.IsStdout(o.Output) {
		opts.Screen = o.Screen
	}
	if o.EmbedSources {
		if opts.Source, err = sourcesOf(ctx, p, o.Symfs, warn); err != nil {
			return 1, output.OrInterrupted(ctx, err)
		}
	}
	line := in.line
	if o.times(format) == noTimes { // only the filters need them
		line = nil
	}
	err = output.Until(ctx, out, func(w io.Writer) error { return format.Write(w, p, line, opts, v) })
	if err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	if err := out.Commit(); err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	return 0, nil
}

// shown returns the values of p that a format shows: all, or v.
func shown(p *profile.Profile, v int, f output.Format) (values []int) {
	if !f.AllValues() {
		return []int{v}
	}
	for i := range p.ValueTypes {
		values = append(values, i)
	}
	return values
}

// times returns the times to write. A page always has the times of a recording, as if fulgur
// record had written the page. It has the times of perf.data on request, also by a filter.
func (o *ConvertOptions) times(f output.Format) wanted {
	switch {
	case o.Value != "" || o.By != nil || !f.HasTimes(true):
		return noTimes
	case f.HasTimes(o.Times):
		return allTimes
	}
	return recordedTimes
}

// profileFormat checks o and returns the output's format.
func (o *ConvertOptions) profileFormat() (output.Format, error) {
	switch {
	case o.Binary != "" || o.Basic || o.Strict:
		return output.Format{}, usage.Errorf("the output is not a profile of branches: use a name ending in %s, or choose a format with %s", plain.Or(branches.Endings), usage.Format)
	case o.Format == "" && (o.Output == "" || o.Output == "-"):
		return output.Format{}, usage.Errorf("no output format (%s): name a file with a known ending, or choose a format with %s", strings.Join(slices.Concat(output.Names(), branches.FormatNames), ", "), usage.Format)
	}
	f, err := output.Choose(o.Output, o.Format)
	if err == nil && o.Times && (o.Value != "" || o.By != nil || !f.HasTimes(true)) {
		return output.Format{}, usage.Errorf("only a page (.html) with all values and without groups, or a profile for the Firefox Profiler, can have times")
	}
	if err == nil && o.EmbedSources && f.Name != "firefox" {
		return output.Format{}, usage.Errorf("only a profile for the Firefox Profiler can contain sources: use a name ending in .json.gz, or choose a format with %s", usage.Format)
	}
	if err != nil {
		return f, err
	}
	return f, f.Allow(output.Options{Inverted: o.Inverted, Width: o.Width})
}

// maxUnembedded limits the missing source files that are reported one by one.
const maxUnembedded = 5

// sourcesOf returns p's source files that exist on this machine, and reports
// the others.
func sourcesOf(ctx context.Context, p *profile.Profile, symfs string, warn func(error)) (source func(string) (string, bool), err error) {
	finder, err := newFinder(symfs)
	if err != nil {
		return nil, err
	}
	library := code.NewLibrary(ctx, finder, symbolize.Options{})
	defer func() { err = errors.Join(err, library.Close()) }()
	texts, problems := library.Sources(p)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, problem := range problems[:min(len(problems), maxUnembedded)] {
		warn(fmt.Errorf("not embedded: %w", problem))
	}
	if more := len(problems) - maxUnembedded; more > 0 {
		warn(fmt.Errorf("not embedded: %s", plain.Count(uint64(more), "more file")))
	}
	return func(file string) (string, bool) {
		text, ok := texts[file]
		return text, ok
	}, nil
}
