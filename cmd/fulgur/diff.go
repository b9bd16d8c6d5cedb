package main

import (
	"context"

	"fulgur/internal/message/usage"
	"fulgur/internal/offline"
	"fulgur/internal/profile/compare"
)

// diffCommand compares two sides of profiles.
type diffCommand struct {
	Profiles []string `arg:"" name:"profile" complete:"file" missing:"give two profiles to compare" help:"The profile to compare with, and the profile to compare, in any format that fulgur convert reads; - is standard input. With several runs: the profiles to compare with, --, and the profiles to compare."`

	Normalize bool   `short:"n" xor:"normalize" group:"contents" help:"Compare shares of each side, for runs of different lengths. Default: compare shares, unless all runs were measured for the same time."`
	Amounts   bool   `name:"no-normalize" xor:"normalize" group:"contents" help:"Compare amounts by run, for runs that did the same work."`
	Per       string `placeholder:"EVENT" xor:"normalize" group:"contents" help:"Compare amounts by EVENT, another value of each profile that counts the work done."`
	filterFlags
	Unit          string          `enum:"count,bytes,ns,us,ms,s," default:"" placeholder:"UNIT" group:"contents" help:"The unit of folded stacks that do not state one: us for bcc's offcputime, or count (the default), bytes, ns, ms or s."`
	Value         string          `placeholder:"TYPE" group:"contents" help:"Compare this value, for example cpu. Default: the first that all profiles have and that is not 0 in one of them."`
	All           bool            `group:"contents" help:"Also list functions that changed within noise, or have too few samples to tell."`
	FailAbove     *growth         `placeholder:"PERCENT" group:"contents" help:"Exit with code 3 if a function grew by more than PERCENT of the sum of all functions, and beyond noise. For runs of the same command, the sum counts, too."`
	FailFunctions []functionLimit `name:"fail-function" sep:"none" placeholder:"NAME>PERCENT" group:"contents" help:"Exit with code 3 if the function NAME grew by more than PERCENT of the sum of all functions, and beyond noise. Can be given several times."`

	nativeFlag
	Output     string  `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE, in the format of its ending: ${comparisonEndings}. - is standard output, the default."`
	Format     string  `placeholder:"NAME" complete:"comparison" group:"output" help:"Output format: ${comparisons}. Default: by the ending of FILE, or text."`
	Inverted   bool    `group:"output" help:"Draw flame graphs upside down, as icicle graphs."`
	Width      *pixels `placeholder:"PIXELS" group:"output" help:"Width of pictures (.svg). Default: 1200."`
	ShortNames bool    `group:"output" help:"Write short names of C++, Rust and Go functions: without template arguments, outer namespaces and package paths."`
	Symfs      string  `placeholder:"DIR" group:"output" help:"Look for binaries and debug files in DIR first, as if it were the root directory."`
	Quiet      bool    `short:"q" group:"output" help:"Do not print warnings to standard error."`
	Top        *count  `placeholder:"N" group:"output" help:"Show the N functions that changed most. Default: 40."`

	after []string // the profiles after "--"
}

// topChanges is the default number of functions in the table.
const topChanges = 40

// growth is a limit of all functions, "3%".
type growth compare.Limit

// UnmarshalText implements encoding.TextUnmarshaler.
func (g *growth) UnmarshalText(text []byte) error {
	l, err := compare.ParseLimit(string(text))
	*g = growth(l)
	return err
}

// functionLimit is a limit of a function, "NAME>1%".
type functionLimit compare.Limit

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *functionLimit) UnmarshalText(text []byte) error {
	l, err := compare.ParseFunctionLimit(string(text))
	*f = functionLimit(l)
	return err
}

// Help returns the text of fulgur diff --help besides the flags.
func (*diffCommand) Help() string {
	return `Compares two profiles, or several runs a side, and tells changes from noise. The table lists the
functions that changed beyond noise, with an interval of 95 %: ± from the spread between runs, or with
one run a side from the numbers of samples, which is a lower bound. Three or more runs a side
find smaller changes. "~" is a change within noise. docs/diff.md explains the statistics, and the JSON.

In flame graphs, boxes are as wide as in the new profile, orange for more and blue for less;
the page always compares shares. To see functions that disappeared, swap the profiles. Folded stacks have
two columns, as flamegraph.pl reads them. Several runs are added up.

Functions are matched by name and module, without marks of compilers such as .cold and hashes of
Rust, so different builds and runs can be compared.

The exit code is 3 if a function grew beyond a limit (--fail-above, --fail-function) and beyond noise.

Examples:

    fulgur diff before.pb.gz after.pb.gz

    # several runs a side
    fulgur diff before-*.pb.gz -- after-*.pb.gz

    # in CI: fail if a function takes 3 % more of the whole
    fulgur diff --fail-above 3% main-*.pb.gz -- branch-*.pb.gz

    fulgur diff -o diff.html before.folded after.folded
`
}

// newSide implements sided.
func (c *diffCommand) newSide(profiles []string) { c.after = profiles }

// sides returns the profiles of both sides.
func (c *diffCommand) sides() (base, changed []string, err error) {
	switch n := len(c.Profiles); {
	case c.after != nil:
		return c.Profiles, c.after, nil
	case n == 1:
		return nil, nil, usage.Errorf("give a second profile, to compare with the first")
	case n > 2:
		return nil, nil, usage.Errorf(`%d profiles are given: put "--" between those to compare with and those to compare`, n)
	}
	return c.Profiles[:1], c.Profiles[1:], nil
}

// normalization returns what amounts are divided by.
func (c *diffCommand) normalization() compare.Normalization {
	switch {
	case c.Per != "":
		return compare.ByWork
	case c.Normalize:
		return compare.Shares
	case c.Amounts:
		return compare.Amounts
	}
	return compare.Automatic
}

// limits returns the largest regressions that are allowed.
func (c *diffCommand) limits() (list []compare.Limit) {
	if c.FailAbove != nil {
		list = append(list, compare.Limit(*c.FailAbove))
	}
	for _, f := range c.FailFunctions {
		list = append(list, compare.Limit(f))
	}
	return list
}

func (c *diffCommand) run(ctx context.Context, env environment) (int, error) {
	base, changed, err := c.sides()
	if err != nil {
		return exitUsage, err
	}
	top := uint64(topChanges)
	if c.Top != nil {
		top = uint64(*c.Top)
	}
	filters, err := c.list()
	if err != nil {
		return exitUsage, err
	}
	return offline.Diff(ctx, offline.DiffOptions{
		Filters:    filters,
		Base:       base,
		New:        changed,
		Value:      c.Value,
		Unit:       c.Unit,
		Symfs:      c.Symfs,
		Normalize:  c.normalization(),
		Work:       c.Per,
		Limits:     c.limits(),
		Functions:  int(top),
		All:        c.All,
		Inverted:   c.Inverted,
		Width:      int(orZero(c.Width)),
		ShortNames: c.ShortNames,
		Native:     c.Native,
		Output:     c.Output,
		Format:     c.Format,
		Stdout:     env.stdout,
		Stderr:     env.stderr,
		Quiet:      c.Quiet,
		Columns:    columns(env.stdout),
	})
}
