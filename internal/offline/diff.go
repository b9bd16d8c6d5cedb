package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/shortname"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/compare"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/encode/folded"
	"fulgur/internal/profile/filter"
	"fulgur/internal/profile/output"
)

// DiffOptions describe a comparison of two sides of profiles.
type DiffOptions struct {
	// Base and New are the files to read, in any format that [Convert] reads, one for each run. One of
	// them may be "-", standard input.
	Base, New []string
	// Value is the type of the value to compare; empty means the first that
	// all have and that is not 0 in all.
	Value string
	// Filters select samples, and leave out frames.
	Filters filter.List
	// Symfs is a directory with a copy of the measured system's files, or "".
	Symfs string
	// Unit is the unit of folded stacks that state none, such as "us"; see
	// [profile.ParseUnit]. Empty means counts.
	Unit string
	// Normalize is what amounts are divided by, and Work the type of the value that counts work
	// if that is [compare.ByWork].
	Normalize compare.Normalization
	Work      string
	// Limits are the largest regressions that are allowed.
	Limits []compare.Limit
	// Native counts each stack for its leaf, even if that is an interpreter's function.
	Native bool
	// Functions is the number of functions in the table, 0 for all. All lists those within noise, too.
	Functions int
	All       bool
	// Inverted draws callees below their callers in flame graphs.
	Inverted bool
	// Width is the width of pictures in pixels; 0 means the default.
	Width int

	// Output is the file to write; "-" or empty means Stdout. Format is its format, one of
	// [ComparisonFormats]; empty derives it from Output's ending, or means text.
	Output, Format string
	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// ShortNames writes the short names of functions.
	ShortNames bool
	// Columns is the width of the terminal, 0 if Stdout is none.
	Columns int
	// Quiet suppresses warnings.
	Quiet bool
}

// maxRuns limits the runs of a side: all of them are in memory at once.
const maxRuns = 100

// ExitRegression is the exit code of a comparison that found a regression beyond the limits.
const ExitRegression = 3

// comparison is what a comparison is written from.
type comparison struct {
	*DiffOptions
	result        *compare.Comparison
	base, changed []compare.Run
}

// diffFormat is a format of a comparison.
type diffFormat struct {
	name, ending string
	write        func(io.Writer, comparison) error
}

var diffFormats = []diffFormat{
	{"text", ".txt", func(w io.Writer, c comparison) error { return c.result.WriteText(w, c.table()) }},
	{"md", ".md", func(w io.Writer, c comparison) error { return c.result.WriteMarkdown(w, c.table()) }},
	{"json", ".json", func(w io.Writer, c comparison) error { return c.result.WriteJSON(w) }},
	{"folded", ".folded", func(w io.Writer, c comparison) error {
		p := c.pooled(c.result.Scale())
		if c.ShortNames {
			p = p.Renamed(shortname.Of)
		}
		return folded.Write(w, p, folded.Options{Compare: true})
	}},
	{"html", ".html", func(w io.Writer, c comparison) error {
		return c.draw(w, 1, flame.WriteHTML) // the page compares shares
	}},
	{"svg", ".svg", func(w io.Writer, c comparison) error { return c.draw(w, c.result.Scale(), flame.WriteSVG) }},
}

// ComparisonFormats lists the formats of comparisons by name.
func ComparisonFormats() (names []string) {
	for _, f := range diffFormats {
		names = append(names, f.name)
	}
	return names
}

// ComparisonEndings lists the endings of their files.
func ComparisonEndings() (endings []string) {
	for _, f := range diffFormats {
		endings = append(endings, f.ending)
	}
	return endings
}

// chooseDiffFormat returns the format of a comparison: by name, or by the ending of path.
func chooseDiffFormat(path, name string) (diffFormat, error) {
	i := slices.IndexFunc(diffFormats, func(f diffFormat) bool {
		return name == f.name || name == "" && strings.HasSuffix(path, f.ending)
	})
	switch {
	case i >= 0:
		return diffFormats[i], nil
	case name != "":
		return diffFormat{}, usage.Errorf("a comparison cannot be written as %s: choose %s", name, plain.Or(ComparisonFormats()))
	case output.IsStream(path):
		return diffFormats[0], nil
	}
	return diffFormat{}, usage.Errorf("a comparison cannot be written to %q: use one of %s, or choose a format with %s", path, strings.Join(ComparisonEndings(), ", "), usage.Format)
}

// check returns a usage error if the format does not support the options.
func (f diffFormat) check(o *DiffOptions) error {
	if of, err := output.Choose("", f.name); err == nil {
		return of.Allow(output.Options{Inverted: o.Inverted, Width: o.Width})
	}
	text, err := output.Choose("", "text") // like the formats that only comparisons have
	if err != nil {
		return err
	}
	return text.Allow(output.Options{Inverted: o.Inverted, Width: o.Width})
}

// table returns the options of tables.
func (c comparison) table() compare.WriteOptions {
	w := compare.WriteOptions{Functions: c.Functions, All: c.All}
	if output.IsStdout(c.Output) {
		w.Columns = c.Columns
	}
	return w
}

// pooled returns the comparison of the sums of both sides, with the base multiplied by scale.
func (c comparison) pooled(scale float64) *profile.Profile {
	only := func(runs []compare.Run) (list []*profile.Profile) {
		for _, r := range runs {
			list = append(list, r.Only(r.Value))
		}
		return list
	}
	return profile.Diff(only(c.base), only(c.changed), scale)
}

// draw draws the comparison as a flame graph, with the base multiplied by scale.
func (c comparison) draw(w io.Writer, scale float64, write func(io.Writer, *profile.Profile, flame.Options) error) error {
	p, last := c.pooled(scale), c.changed[len(c.changed)-1]
	base, changed := p.Only(0), p.Only(1)
	types := []profile.ValueType{last.ValueTypes[last.Value]}
	base.ValueTypes, changed.ValueTypes = types, types
	base.Meta = c.base[0].Meta
	return write(w, changed, flame.Options{
		Title: sideName(c.Base) + " → " + sideName(c.New), Base: base,
		Inverted: c.Inverted, Width: c.Width, ShortNames: c.ShortNames, Native: c.Native,
	})
}

// sideName names the runs of a side.
func sideName(paths []string) string {
	if n := len(paths); n > 1 {
		return fmt.Sprintf("%s and %d more", paths[0], n-1)
	}
	return paths[0]
}

// Diff writes how two sides of profiles differ. The exit code is 0, [ExitRegression] if a change is beyond
// the limits and beyond noise, 2 with a usage error, or 1 with another one.
func Diff(ctx context.Context, o DiffOptions) (exitCode int, err error) {
	format, err := chooseDiffFormat(o.Output, o.Format)
	if err != nil {
		return 2, err
	}
	if err := errors.Join(checkSymfs(o.Symfs), format.check(&o)); err != nil {
		return 2, err
	}
	base, changed, exitCode, err := o.read(ctx)
	if err != nil {
		return exitCode, err
	}
	c := comparison{DiffOptions: &o, base: base, changed: changed}
	out, err := output.Create(ctx, o.Output, o.Stdout)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()
	err = output.Until(ctx, out, func(w io.Writer) error {
		if err := c.compare(); err != nil {
			return err
		}
		return format.write(w, c)
	})
	if err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	if err := out.Commit(); err != nil {
		return 1, err
	}
	for _, r := range c.result.Regressions {
		_, _ = fmt.Fprintf(o.Stderr, "regression: %s\n", r)
	}
	if len(c.result.Regressions) > 0 {
		return ExitRegression, nil
	}
	return 0, nil
}

// compare compares both sides, and looks for regressions beyond the limits.
func (c *comparison) compare() error {
	c.result = compare.New(c.base, c.changed, compare.Options{Normalize: c.Normalize, Work: c.Work, ShortNames: c.ShortNames, Native: c.Native})
	if len(c.Limits) == 0 {
		return nil
	}
	if !c.result.Tested {
		return errors.New("regressions cannot be told from noise: the profiles do not say how many samples they have; give several runs a side")
	}
	for _, l := range c.result.Check(c.Limits) {
		warnOn(c.Stderr, c.Quiet)(fmt.Errorf("no profile has the function of the limit %s", l))
	}
	return nil
}

// read reads the runs of both sides, with the values to compare. With an error, it returns the exit
// code.
func (o *DiffOptions) read(ctx context.Context) (base, changed []compare.Run, exitCode int, err error) {
	paths := slices.Concat(o.Base, o.New)
	switch stdin := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p != "-" }); {
	case len(stdin) > 1:
		return nil, nil, 2, usage.Errorf("only one of the profiles can be standard input")
	case len(o.Base) == 0 || len(o.New) == 0:
		return nil, nil, 2, usage.Errorf("give profiles of both sides")
	case len(o.Base) > maxRuns || len(o.New) > maxRuns:
		return nil, nil, 2, usage.Errorf("a side can have at most %d profiles", maxRuns)
	}
	inputs, code, err := o.readInputs(ctx, paths)
	if err != nil {
		return nil, nil, code, err
	}
	defer func() {
		for _, in := range inputs {
			err = errors.Join(err, in.Close())
		}
	}()
	profiles, work := make([]*profile.Profile, len(paths)), make([]float64, len(paths))
	times, others := o.Filters.Split(filter.Time, filter.IgnoreTime)
	for i, in := range inputs {
		if err := in.filter(paths[i], times); err != nil {
			code, err := exitCodeOf(ctx, err)
			return nil, nil, code, err
		}
		in.profile = in.profile.InBase()
		if work[i], err = o.work(in.profile, paths[i]); err != nil {
			return nil, nil, 2, err
		}
		if err := in.filter(paths[i], others); err != nil {
			code, err := exitCodeOf(ctx, err)
			return nil, nil, code, err
		}
		profiles[i] = in.profile.InBase()
	}
	runs := make([]compare.Run, len(paths))
	value := o.Value
	if value == "" {
		last := len(profiles) - 1
		if v := commonValue(profiles[last], profiles[:last]...); v >= 0 {
			value = profiles[last].ValueTypes[v].Type
		}
	}
	for i, p := range profiles {
		runs[i] = compare.Run{Profile: p, Name: paths[i], Work: work[i]}
		if runs[i].Value, err = chooseValue(p, value); err != nil {
			return nil, nil, 2, err
		}
		if o.Normalize == compare.ByWork && p.ValueTypes[runs[i].Value].Type == o.Work {
			return nil, nil, 2, usage.Errorf("%s is both the value and the work: choose the value to compare with %s", plain.Terminal(o.Work), usage.Value)
		}
		if a, b := runs[0].ValueTypes[runs[0].Value], p.ValueTypes[runs[i].Value]; a.Unit != b.Unit {
			return nil, nil, 2, usage.Errorf("%s has %s and %s has %s: choose the value to compare with %s",
				paths[0], strings.TrimSpace(a.Type+" "+a.Unit), paths[i], strings.TrimSpace(b.Type+" "+b.Unit), usage.Value)
		}
	}
	if o.Value == "" {
		warnEvents(runs[len(runs)-1].Profile, runs[len(runs)-1].Value, warnOn(o.Stderr, o.Quiet))
	}
	return runs[:len(o.Base)], runs[len(o.Base):], 0, nil
}

// readInputs reads the runs. With an error, it returns the exit code.
func (o *DiffOptions) readInputs(ctx context.Context, paths []string) (inputs []*input, exitCode int, err error) {
	defer func() {
		if err != nil {
			for _, in := range inputs {
				err = errors.Join(err, in.Close())
			}
		}
	}()
	isFolded, tasks := true, 0
	for _, path := range paths {
		in, err := readInput(ctx, path, o.Symfs, o.Unit, timesFor(o.Filters, noTimes), warnOn(o.Stderr, o.Quiet))
		if err != nil {
			return inputs, 1, output.OrInterrupted(ctx, err)
		}
		inputs = append(inputs, in)
		isFolded = isFolded && in.format == decode.Folded
		if namesTasks(in.profile) {
			tasks++
		}
	}
	// The text of folded stacks does not tell tasks from functions, so its reader may decide differently.
	if isFolded && tasks > 0 && tasks < len(inputs) {
		for _, in := range inputs {
			if in.profile, err = decode.WithoutTasks(in.profile); err != nil {
				return inputs, 1, err
			}
		}
	}
	return inputs, 0, nil
}

// work returns the work that a run did, 0 if amounts are not compared by it. Only filters of time apply to it.
// Errors are usage errors.
func (o *DiffOptions) work(p *profile.Profile, path string) (float64, error) {
	if o.Normalize != compare.ByWork {
		return 0, nil
	}
	v, err := chooseValue(p, o.Work)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	if p.Total(v) <= 0 {
		return 0, usage.Errorf("%s has no %s", path, plain.Terminal(o.Work))
	}
	return float64(p.Total(v)), nil
}

// namesTasks reports whether a task has a name.
func namesTasks(p *profile.Profile) bool {
	return slices.ContainsFunc(p.Tasks, func(t profile.Task) bool { return t.Comm != "" })
}
