package main

import (
	"context"

	"fulgur/internal/branches"
)

// autofdoCommand records branches for clang.
type autofdoCommand struct {
	branchFlags

	Kernel bool `group:"what" help:"Profile the running kernel, in all processes or only those of -p. --binary gives its vmlinux with debug information; by default, fulgur finds it by build ID. Needs a processor with branch records."`

	Output string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE; - is standard output, the default."`
	Format string `enum:"text,extbinary" default:"extbinary" placeholder:"NAME" group:"output" help:"Format of the profile: extbinary, the default, or text. clang reads both."`
	branchReportFlags
}

// Help returns the text of fulgur autofdo --help besides the flags.
func (*autofdoCommand) Help() string {
	return `Records branches as fulgur bolt does, and writes a sample profile for clang
(AutoFDO): how often each source line ran, which functions were called there, and which were
inlined. With it, clang -fprofile-sample-use=FILE inlines hot calls and keeps hot code
together. The profile is by source line, so it also fits later versions of the program.

The program needs debug information: build it with clang -g -fdebug-info-for-profiling,
or -g1 with that option, and optimization as usual. fulgur also finds separate debug files
by build ID, and downloads them if DEBUGINFOD_URLS is set. Programs built with GCC
work, too, but GCC itself cannot read the profile.

Examples:

    # a process, for a minute
    sudo fulgur autofdo -p 1234 -o server.prof 60

    # build the program with the profile
    clang -O2 -g -fdebug-info-for-profiling -fprofile-sample-use=server.prof ...

    # in a virtual machine without branch records
    sudo fulgur autofdo --branches counting -p 1234 -o server.prof

    # a command
    sudo fulgur autofdo -o server.prof -- ./server --benchmark

    # the running kernel, for make LLVM=1 CLANG_AUTOFDO_PROFILE=kernel.prof
    sudo fulgur autofdo --kernel -o kernel.prof 60

    # branches recorded by perf, or by fulgur bolt
    fulgur convert --binary ./server -o server.prof perf.data
    fulgur convert --binary ./server -o server.prof server.preagg

    # many hosts and runs
    llvm-profdata merge --sample --extbinary -o all.prof host*/server.*.afdo
`
}

func (c *autofdoCommand) run(ctx context.Context, env environment) (int, error) {
	return measureBranches(ctx, env, c.options)
}

// options translates the flags.
func (c *autofdoCommand) options() (branches.Options, error) {
	o, err := c.branchFlags.options()
	if err != nil {
		return o, err
	}
	c.add(&o)
	o.Kernel = c.Kernel
	o.Samples, o.Output = branches.SampleFormat(c.Format), c.Output
	return o, nil
}
