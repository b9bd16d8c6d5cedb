package main

import (
	"context"

	"fulgur/internal/offline"
)

// diffCommand compares two profiles.
type diffCommand struct {
	Base string `arg:"" complete:"file" missing:"give two profiles to compare" help:"The profile to compare with, in any format that fulgur convert reads; - is standard input."`
	New  string `arg:"" complete:"file" missing:"give a second profile, to compare with the first" help:"The profile to compare."`

	Normalize bool `short:"n" group:"contents" help:"Compare shares instead of amounts, for runs of different lengths. In folded stacks, scale the base."`
	filterFlags
	Unit  string `enum:"count,bytes,ns,us,ms,s," default:"" placeholder:"UNIT" group:"contents" help:"The unit of folded stacks that do not state one: us for bcc's offcputime, or count (the default), bytes, ns, ms or s."`
	Value string `placeholder:"TYPE" group:"contents" help:"Compare this value, for example cpu. Default: the first that both profiles have and that is not 0 in one of them."`

	Output     string  `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE, in the format of its ending: ${comparisonEndings}. - is standard output, the default."`
	Format     string  `placeholder:"NAME" complete:"comparison" group:"output" help:"Output format: ${comparisons}. Default: by the ending of FILE, or text."`
	Inverted   bool    `group:"output" help:"Draw flame graphs upside down, as icicle graphs."`
	Width      *pixels `placeholder:"PIXELS" group:"output" help:"Width of pictures (.svg). Default: 1200."`
	ShortNames bool    `group:"output" help:"Write short names of C++, Rust and Go functions: without template arguments, outer namespaces and package paths."`
	Symfs      string  `placeholder:"DIR" group:"output" help:"Look for binaries and debug files in DIR first, as if it were the root directory."`
	Quiet      bool    `short:"q" group:"output" help:"Do not print warnings to standard error."`
	Top        *count  `placeholder:"N" group:"output" help:"Show the N functions that changed most. Default: 40."`
}

// topChanges is the default number of functions in the table.
const topChanges = 40

// Help returns the text of fulgur diff --help besides the flags.
func (*diffCommand) Help() string {
	return `Compares two profiles. The table lists the functions whose self values changed most: in
amounts, or with --normalize in shares of each profile. In flame graphs, boxes are as
wide as in the new profile, orange for more and blue for less; the page always compares
shares. To see functions that disappeared, swap the profiles. Folded stacks have two
columns, as flamegraph.pl reads them.

Stacks are matched by names of functions and modules, so different builds and runs can
be compared.

Examples:

    fulgur diff before.pb.gz after.pb.gz

    fulgur diff -n -o diff.html before.folded after.folded
`
}

func (c *diffCommand) run(ctx context.Context, env environment) (int, error) {
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
		Base:       c.Base,
		New:        c.New,
		Value:      c.Value,
		Unit:       c.Unit,
		Symfs:      c.Symfs,
		Normalize:  c.Normalize,
		Functions:  int(top),
		Inverted:   c.Inverted,
		Width:      int(orZero(c.Width)),
		ShortNames: c.ShortNames,
		Output:     c.Output,
		Format:     c.Format,
		Stdout:     env.stdout,
		Stderr:     env.stderr,
		Quiet:      c.Quiet,
		Columns:    columns(env.stdout),
	})
}
