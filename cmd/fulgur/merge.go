package main

import (
	"context"

	"fulgur/internal/autofdo/sampleprof"
	"fulgur/internal/session/boltprofile"
)

// mergeCommand merges profiles for BOLT, or sample profiles for clang.
type mergeCommand struct {
	Inputs []string `arg:"" name:"profile" complete:"file" help:"Pre-aggregated profiles for BOLT, or sample profiles for clang; - is standard input."`

	Output string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE; - is standard output, the default."`
	Format string `enum:"text,extbinary," default:"" placeholder:"NAME" group:"output" help:"Format of a sample profile: text or extbinary. Default: the first input's."`
	Force  bool   `group:"output" help:"Merge BOLT profiles of different build IDs, too."`
	Quiet  bool   `short:"q" group:"output" help:"Do not print warnings to standard error."`
}

// Help returns the text of fulgur merge --help besides the flags.
func (*mergeCommand) Help() string {
	return `Adds up the counts of many hosts and runs.

Profiles for BOLT must be of one binary. The format has no field for a build ID, so fulgur
uses the build ID in file names like NAME.BUILDID.preagg, and refuses to merge files whose
build IDs differ. It reads all versions of the format, also from other tools, and its memory
use does not depend on the size of the profiles.

Sample profiles for clang are by source line, so profiles of different builds and binaries
add up. fulgur reads LLVM's text and extensible binary formats, also from other tools.

Examples:

    fulgur merge -o all.preagg host*/server.*.preagg
    fulgur merge -o all.prof host*/server.*.afdo
`
}

func (c *mergeCommand) run(ctx context.Context, env environment) (int, error) {
	return boltprofile.Merge(ctx, boltprofile.MergeOptions{
		Inputs:  c.Inputs,
		Output:  c.Output,
		Samples: sampleprof.Format(c.Format),
		Force:   c.Force,
		Stdout:  env.stdout,
		Stderr:  env.stderr,
		Quiet:   c.Quiet,
	})
}
