package main

import (
	"context"

	"fulgur/internal/branches"
)

// mergeCommand merges profiles for BOLT.
type mergeCommand struct {
	Inputs []string `arg:"" name:"profile" complete:"file" missing:"give the profiles to merge" help:"Pre-aggregated profiles for BOLT; - is standard input."`

	Output string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE; - is standard output, the default."`
	Force  bool   `group:"output" help:"Merge profiles of different build IDs, too."`
	Quiet  bool   `short:"q" group:"output" help:"Do not print warnings to standard error."`
}

// Help returns the text of fulgur merge --help besides the flags.
func (*mergeCommand) Help() string {
	return `Adds up the counts of many hosts and runs.

Profiles must be of one binary. The format has no field for a build ID, so fulgur
uses the build ID in file names like NAME.BUILDID.preagg, and refuses to merge files whose
build IDs differ. It reads all versions of the format, also from other tools, and its memory
use does not depend on the size of the profiles.

Sample profiles for clang (AutoFDO) can be merged by llvm-profdata merge --sample, also those
of different builds.

Example:

    fulgur merge -o all.preagg host*/server.*.preagg
`
}

func (c *mergeCommand) run(ctx context.Context, env environment) (int, error) {
	return branches.Merge(ctx, branches.MergeOptions{
		Inputs: c.Inputs,
		Output: c.Output,
		Force:  c.Force,
		Stdout: env.stdout,
		Stderr: env.stderr,
		Quiet:  c.Quiet,
	})
}
