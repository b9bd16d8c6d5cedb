package main

import (
	"context"

	"fulgur/internal/session/boltprofile"
)

// mergeCommand adds profiles for BOLT up.
type mergeCommand struct {
	Inputs []string `arg:"" name:"profile" complete:"file" help:"Pre-aggregated profiles for BOLT; - is standard input."`

	Output string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE; - is standard output, the default."`
	Force  bool   `group:"output" help:"Merge profiles of different build IDs, too."`
	Quiet  bool   `short:"q" group:"output" help:"No warnings on standard error."`
}

// Help is what fulgur merge --help says beside the flags.
func (*mergeCommand) Help() string {
	return `Adds up what was counted on many hosts and in many runs of one binary. The format
has no place for a build ID: it is taken from names as fulgur gives them,
NAME.BUILDID.preagg, and profiles whose names tell different ones are refused. All
versions of the format are read, other tools' files too. The memory it takes does
not depend on the profiles' size.

Example:

    fulgur merge -o all.preagg host*/server.*.preagg
`
}

func (c *mergeCommand) run(ctx context.Context, env environment) (int, error) {
	return boltprofile.Merge(ctx, boltprofile.MergeOptions{
		Inputs: c.Inputs,
		Output: c.Output,
		Force:  c.Force,
		Stdout: env.stdout,
		Stderr: env.stderr,
		Quiet:  c.Quiet,
	})
}
