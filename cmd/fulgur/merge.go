package main

import (
	"context"

	"fulgur/internal/offline"
)

// mergeCommand adds up profiles.
type mergeCommand struct {
	Inputs []string `arg:"" name:"profile" complete:"file" missing:"give the profiles to merge" help:"The profiles to add up; - is standard input."`

	Output string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE, in the format of its ending; - is standard output, the default. If FILE is a URL, send the sum to an OpenTelemetry back end."`
	Format string `placeholder:"NAME" complete:"format" group:"output" help:"Output format: ${formats}. Default: by the ending of FILE. The sum of BOLT profiles is one."`
	Symfs  string `placeholder:"DIR" group:"output" help:"Look for binaries and debug files in DIR first, as if it were the root directory."`
	NoIDs  bool   `name:"no-ids" group:"output" help:"Leave out IDs of processes, threads and CPUs, and addresses of the kernel and of generated code: processes with the same name are one, and the sum of many runs is not larger than one."`
	Force  bool   `group:"output" help:"Merge BOLT profiles of different build IDs, too."`
	Quiet  bool   `short:"q" group:"output" help:"Do not print warnings to standard error."`
}

// Help returns the text of fulgur merge --help besides the flags.
func (*mergeCommand) Help() string {
	return `Adds up the profiles of many hosts and runs, in any formats that fulgur convert reads. It
reads one after the other, and keeps only the sum. Files are the same if they have the same
build ID, wherever processes mapped them. Losses and durations add up. Profiles with
different values or units are refused.

If the profiles state several hosts, the sum has no IDs of processes and CPUs, since they
would mean something else on each. --no-ids leaves them out for runs of one host, too.

Or it adds up pre-aggregated profiles for BOLT of one binary. That format has no field
for a build ID, so fulgur uses the build ID in file names like NAME.BUILDID.preagg, and
refuses to merge files whose build IDs differ. It reads all versions of the format, also
from other tools, and its memory use does not depend on the size of the profiles.

Sample profiles for clang (AutoFDO) can be merged by llvm-profdata merge --sample, also those
of different builds.

Examples:

    # a flame graph of a fleet
    fulgur merge -o fleet.html host*/cpu.pb.gz

    # profiles for BOLT
    fulgur merge -o all.preagg host*/server.*.preagg
`
}

func (c *mergeCommand) run(ctx context.Context, env environment) (int, error) {
	resource, err := resourceFor(c.Output)
	if err != nil {
		return exitUsage, err
	}
	return offline.Merge(ctx, offline.MergeOptions{
		Inputs:     c.Inputs,
		Output:     c.Output,
		Format:     c.Format,
		Symfs:      c.Symfs,
		Force:      c.Force,
		WithoutIDs: c.NoIDs,
		Resource:   resource,
		Stdout:     env.stdout,
		Stderr:     env.stderr,
		Quiet:      c.Quiet,
	})
}
