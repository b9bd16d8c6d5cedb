package main

import (
	"context"
	"errors"
	"time"

	"github.com/alecthomas/kong"

	"fulgur/internal/branches"
	"fulgur/internal/capture/target"
)

// branchFlags select which branches to record and how, in the commands that do.
type branchFlags struct {
	Duration *seconds `arg:"" optional:"" help:"How long to sample: seconds, or 1m30s. Default: 10 seconds; with --branches counting or breakpoints, a minute; with --branches stepping, until the profile is sufficient, at most 5 minutes; with a command, until it exits."`
	Command  []string `kong:"-"` // the arguments after "--"

	PID         ids    `short:"p" name:"pid" placeholder:"PID,..." xor:"target" group:"what" help:"Sample these processes, including threads that start later."`
	Cgroup      string `placeholder:"PATH" xor:"target" group:"what" help:"Sample this cgroup (v2) and its descendants, including tasks that join later."`
	Children    bool   `group:"what" help:"With -p, include existing and future descendants. A command's descendants are always included."`
	Binary      string `placeholder:"FILE" xor:"binary" group:"what" help:"Profile this executable or shared object, in every process that maps it. Default: the program of the -p processes or the command."`
	AllBinaries bool   `xor:"binary" group:"what" help:"Profile every mapped file. -o is a directory; files in it are named by binary and build ID."`

	Branches    string     `enum:"auto,hardware,counting,breakpoints,stepping" default:"auto" placeholder:"HOW" group:"how" help:"How to record branches: hardware uses the CPU's branch records; counting counts the outcomes of jumps with uprobes; breakpoints counts them with hardware breakpoints; stepping single-steps the target's threads (fulgur help bolt describes all); auto, the default, uses the first of these that this machine supports, but stepping only for a command."`
	Event       string     `short:"e" placeholder:"EVENT" group:"how" help:"Sample this event, for example cycles or pmu/terms/. Default: the best event of this CPU for branches."`
	Frequency   *frequency `short:"f" placeholder:"HZ" group:"how" help:"Samples per second on each CPU, or max. Default: max; with --branches counting or breakpoints, 499."`
	MaxOverhead *percent   `placeholder:"PERCENT" group:"how" help:"Maximum slowdown of the target by counting, or of each thread by stepping. Default: 5 for counting and breakpoints, 10 for stepping; with a command, 50."`
	MaxStall    *hold      `placeholder:"TIME" group:"how" help:"Maximum time that counting should stall a thread. Default: 10ms."`
	Burst       *hold      `placeholder:"TIME" group:"how" help:"Maximum time that stepping holds a thread. Default: 20ms."`
}

// branchReportFlags select what commands that record branches print, and their limits.
type branchReportFlags struct {
	Stats   string `enum:"text,json" default:"text" placeholder:"FORM" group:"output" help:"Format of the summary on standard error: text, the default, or json."`
	Verbose bool   `short:"v" group:"output" help:"Print how branches are recorded, and how often."`
	Quiet   bool   `short:"q" group:"output" help:"Do not print progress, warnings and the summary to standard error."`
	logFlag

	RingSize *size `placeholder:"BYTES" group:"limit" help:"Size of each CPU's ring buffer, for example 1M; rounded up to a power of 2."`

	Version kong.VersionFlag `short:"V" help:"Print the version."`
}

func (c *branchFlags) launch(argv []string) { c.Command = argv }

// measureBranches runs a command with the given options.
func measureBranches(ctx context.Context, env environment, options func() (branches.Options, error)) (int, error) {
	o, err := options()
	if err != nil {
		return exitUsage, usageError{err}
	}
	o.Stdout, o.Stderr = env.stdout, env.stderr
	o.Progress, o.Interruptible = !o.Quiet && isScreen(env.stderr), interruptible
	return branches.Measure(ctx, o)
}

// options translates the flags.
func (c *branchFlags) options() (branches.Options, error) {
	measured, err := c.target()
	if err != nil {
		return branches.Options{}, err
	}
	if c.Duration != nil && *c.Duration == 0 {
		return branches.Options{}, errors.New("a duration of 0 measures nothing")
	}
	return branches.Options{
		Target:         measured,
		Command:        c.Command,
		ProfileOptions: branches.ProfileOptions{Binary: c.Binary, AllBinaries: c.AllBinaries},
		Branches:       c.Branches,
		Event:          c.Event,
		Frequency:      uint64(orZero(c.Frequency)),
		MaxOverhead:    float64(orZero(c.MaxOverhead)),
		MaxStall:       time.Duration(orZero(c.MaxStall)),
		BurstMax:       time.Duration(orZero(c.Burst)),
		Duration:       time.Duration(orZero(c.Duration)),
	}, nil
}

// target returns the target that the flags select. kong has checked that there is
// only one.
func (c *branchFlags) target() (target.Target, error) {
	return chooseTarget(target.Target{PIDs: c.PID, CgroupPath: c.Cgroup, Children: c.Children}, c.Command)
}

// add adds the flags to o.
func (c *branchReportFlags) add(o *branches.Options) {
	o.StatsJSON = c.Stats == "json"
	o.Verbose, o.Quiet = c.Verbose, c.Quiet
	o.RingSize = uint32(orZero(c.RingSize))
}
