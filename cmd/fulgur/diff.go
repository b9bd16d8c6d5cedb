package main

import (
	"context"

	"fulgur/internal/session/offline"
)

// diffCommand compares two profiles.
type diffCommand struct {
	Base string `arg:"" complete:"file" help:"The profile to compare with, in any format that fulgur convert reads; - is standard input."`
	New  string `arg:"" complete:"file" help:"The profile to look at."`

	Normalize bool   `short:"n" group:"contents" help:"Compare shares, not amounts: for runs of different lengths. Folded stacks of the base are scaled."`
	Value     string `placeholder:"TYPE" group:"contents" help:"Compare this value, as cpu. Default: the first that both have and that is not 0 in at least one."`

	Output   string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE in the format that its ending names: .txt, .folded, .html or .svg; - is standard output, the default."`
	Format   string `placeholder:"NAME" group:"output" help:"Write in this format whatever the ending: text, folded, html, svg. Default on standard output: text."`
	Inverted bool   `group:"output" help:"Let callees hang below their callers in flame graphs: icicle graphs."`
	Quiet    bool   `short:"q" group:"output" help:"No warnings on standard error."`
	Top      *count `placeholder:"N" group:"output" help:"Show the N functions that changed most in the table. Default: 40."`
}

// topChanges is how many functions the table has unless told otherwise.
const topChanges = 40

// Help is what fulgur diff --help says beside the flags.
func (*diffCommand) Help() string {
	return `Says what changed from one profile to another. The table has the functions that
themselves changed most: in amounts, or with --normalize in their shares of either
profile. In flame graphs boxes are as wide as in the new profile, orange where there
is more and blue where there is less; the page always compares shares. What is gone
shows if the two are given the other way round. Folded stacks have two columns, as
flamegraph.pl reads them.

Stacks are taken for the same by the names of functions and modules, so that
builds and runs can be compared.

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
	return offline.Diff(ctx, offline.DiffOptions{
		Base:      c.Base,
		New:       c.New,
		Value:     c.Value,
		Normalize: c.Normalize,
		Functions: int(top),
		Inverted:  c.Inverted,
		Output:    c.Output,
		Format:    c.Format,
		Stdout:    env.stdout,
		Stderr:    env.stderr,
		Quiet:     c.Quiet,
	})
}
