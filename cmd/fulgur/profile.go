package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"fulgur/internal/session"
	"fulgur/internal/target"
)

// profileCommand has the flags of bcc's profile, by their names, and some of
// perf record's.
type profileCommand struct {
	Duration *seconds `arg:"" optional:"" help:"How long to sample: seconds, or as 1m30s. Without it until Ctrl-C or the target's exit."`
	Command  []string `kong:"-"` // what follows "--"

	PID      ids    `short:"p" name:"pid" placeholder:"PID,..." xor:"target" group:"what" help:"Sample these processes: all their threads, also those that start later."`
	TID      ids    `short:"L" name:"tid" placeholder:"TID,..." xor:"target" group:"what" help:"Sample these threads and no others of their processes."`
	Cgroup   string `placeholder:"PATH" xor:"target" group:"what" help:"Sample the tasks of this cgroup (v2) and of those below it, also those that join later."`
	Children bool   `group:"what" help:"With -p, sample their child processes too, at any depth: those that exist and those that start later. A command's are always sampled."`
	CPU      cpus   `short:"C" name:"cpu" placeholder:"CPU,..." group:"what" help:"Sample on these CPUs only, as 0,2-3."`
	Idle     bool   `short:"I" name:"include-idle" group:"what" help:"Include samples of idle CPUs."`
	User     bool   `short:"U" name:"user-stacks-only" xor:"side" group:"what" help:"Show user stacks only."`
	Kernel   bool   `short:"K" name:"kernel-stacks-only" xor:"side" group:"what" help:"Show kernel stacks only."`

	Event     string     `short:"e" placeholder:"EVENT" group:"how" help:"Sample this event. Default: CPU cycles, or cpu-clock where they cannot be counted."`
	Frequency *frequency `short:"F" placeholder:"HZ" xor:"rate" group:"how" help:"Samples a second on each CPU, or max. Default: ${frequency}. Odd rates avoid marching in step with timers that fire at round ones."`
	Count     *count     `short:"c" placeholder:"N" xor:"rate" group:"how" help:"Sample every Nth event instead. Clocks count nanoseconds, from 10000 on."`
	Delay     seconds    `placeholder:"TIME" group:"how" help:"Wait before sampling."`
	Unwind    string     `enum:"auto,dwarf,fp" default:"auto" placeholder:"METHOD" group:"how" help:"Find the callers of user code by the unwind tables that programs and libraries bring along, and by frame pointers where there are none (auto, the default); by tables alone (dwarf); or by frame pointers alone (fp), which most distributions' code does not keep."`
	MaxDepth  *count     `placeholder:"N" group:"how" help:"Keep at most N frames of each kernel and user stack. Default: 127."`

	Output     string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE in the format that its ending names: .folded, .txt, .svg, .html, .pb.gz, .pprof, .json.gz (for the Firefox Profiler) or .speedscope.json; - is standard output, the default."`
	Format     string `placeholder:"NAME" group:"output" help:"Write in this format whatever the ending: ${formats}. Default on standard output: text."`
	Folded     bool   `short:"f" group:"output" help:"Write folded stacks, a line for each, for flame graphs."`
	Delimited  bool   `short:"d" group:"output" help:"Put a delimiter between kernel and user frames."`
	Annotate   bool   `short:"a" name:"annotations" group:"output" help:"Mark kernel frames with _[k] and inlined functions with _[i]."`
	PerThread  bool   `group:"output" help:"Tell threads apart, as COMM-PID/TID in folded stacks and flame graphs."`
	PerCPU     bool   `name:"per-cpu" group:"output" help:"Tell CPUs apart, as a first frame [CPU N] in folded stacks and flame graphs."`
	NoInlines  bool   `group:"output" help:"Show neither inlined functions nor files and lines: names only, for less time and memory."`
	NoDemangle bool   `group:"output" help:"Show C++ and Rust functions by the linker's names."`
	ShortNames bool   `group:"output" help:"Show <...> for the arguments of C++ templates and Rust generics."`
	Symfs      string `placeholder:"DIR" group:"output" help:"Look for debug files below DIR first, as if it were the root directory."`
	Quiet      bool   `short:"q" group:"output" help:"No progress, no warnings and no summary on standard error."`

	RingSize     *size  `placeholder:"BYTES" group:"limit" help:"Size of the ring that new stacks come through, as 1M; rounded up to a power of 2."`
	CountEntries *count `placeholder:"N" group:"limit" help:"How many different stacks can be counted at a time."`
	SeenEntries  *count `aliases:"stack-storage-size" placeholder:"N" group:"limit" help:"How many stacks are remembered as known (bcc: --stack-storage-size)."`
	UnwindMemory *size  `placeholder:"BYTES" group:"limit" help:"Memory for unwind tables in the kernel, as 64M. Default: 256M. Tables that do not fit come and go."`
}

// profileVars are what the help text takes from elsewhere.
func profileVars() kong.Vars {
	return kong.Vars{
		"frequency": strconv.Itoa(session.DefaultFrequency),
		"formats":   session.FormatNames(),
	}
}

// profileGroups are the headings of the help text.
func profileGroups() []kong.Group {
	return []kong.Group{
		{Key: "what", Title: "What to sample"},
		{Key: "how", Title: "How to sample"},
		{Key: "output", Title: "Output"},
		{Key: "limit", Title: "Limits (fulgur says when one was hit, and which)"},
	}
}

// Help is what fulgur profile --help says beside the flags.
func (*profileCommand) Help() string {
	return `Samples the whole system unless told otherwise. With "-- COMMAND ARG..." at the
end it runs COMMAND and samples it; the exit code is then COMMAND's. Data goes to
standard output or FILE, everything else to standard error. Ctrl-C ends the
measurement, writes what there is and asks COMMAND to end; a second one ends
fulgur at once, or first the download of debug files. A COMMAND that outlives the
duration is waited for.

Inlined functions, files and lines come from debug information: in the program,
in the debug files that distributions package, or, if DEBUGINFOD_URLS names
servers, downloaded from these.

Examples:

    # the whole machine for 10 seconds, as a flame graph
    sudo fulgur profile -o flame.html 10

    # one process, until Ctrl-C
    sudo fulgur profile -p 1234 -o profile.pb.gz

    # a command from its first instruction to its exit
    sudo fulgur profile -F 999 -o flame.svg -- make -j8

    # kernel stacks on CPU 2, folded
    sudo fulgur profile -K -C 2 -f 5 > kernel.folded
`
}

func (c *profileCommand) launch(argv []string) { c.Command = argv }

func (c *profileCommand) run(ctx context.Context, env environment) (int, error) {
	o, err := c.options()
	if err != nil {
		return exitUsage, usageError{err}
	}
	o.Stdout, o.Stderr, o.Args = env.stdout, env.stderr, append([]string{"fulgur"}, env.args...)
	o.Interruptible = interruptible
	o.Progress = !o.Quiet && isTerminal(env.stderr)
	return session.Profile(ctx, o)
}

// options translates the flags.
func (c *profileCommand) options() (session.Options, error) {
	measured, err := c.target()
	if err != nil {
		return session.Options{}, err
	}
	format, err := c.format()
	if err != nil {
		return session.Options{}, err
	}
	duration, err := c.duration()
	if err != nil {
		return session.Options{}, err
	}
	return session.Options{
		Target:       measured,
		Command:      c.Command,
		Event:        c.Event,
		Frequency:    uint64(orZero(c.Frequency)),
		Period:       uint64(orZero(c.Count)),
		Duration:     duration,
		Delay:        time.Duration(c.Delay),
		UserOnly:     c.User,
		KernelOnly:   c.Kernel,
		Idle:         c.Idle,
		PerThread:    c.PerThread,
		PerCPU:       c.PerCPU,
		NoDemangle:   c.NoDemangle,
		ShortNames:   c.ShortNames,
		NoInlines:    c.NoInlines,
		Symfs:        c.Symfs,
		MaxDepth:     int(orZero(c.MaxDepth)),
		Unwind:       c.Unwind,
		UnwindMemory: int64(orZero(c.UnwindMemory)),
		RingSize:     uint32(orZero(c.RingSize)),
		CountEntries: uint32(orZero(c.CountEntries)),
		SeenEntries:  uint32(orZero(c.SeenEntries)),
		Output:       c.Output,
		Format:       format,
		Annotate:     c.Annotate,
		Delimited:    c.Delimited,
		Quiet:        c.Quiet,
	}, nil
}

// target is what the flags choose; kong has seen to it that they choose once.
func (c *profileCommand) target() (target.Target, error) {
	return chooseTarget(target.Target{PIDs: c.PID, TIDs: c.TID, CgroupPath: c.Cgroup, CPUs: c.CPU, Children: c.Children}, c.Command)
}

// chooseTarget completes t by its scope, which is the sort of what it names, or
// a command.
func chooseTarget(t target.Target, command []string) (target.Target, error) {
	switch {
	case len(t.PIDs) > 0:
		t.Scope = target.Processes
	case len(t.TIDs) > 0:
		t.Scope = target.Threads
	case t.CgroupPath != "":
		t.Scope = target.Cgroup
	}
	if len(command) > 0 {
		if t.Scope != target.System {
			return t, errors.New("a command after \"--\" is what is sampled: -p, -L and --cgroup cannot be added")
		}
		t.Scope = target.Command
	}
	if t.Children && t.Scope != target.Processes && t.Scope != target.Command {
		return t, errors.New("--children needs -p or a command")
	}
	return t, nil
}

// format is the format asked for by name, empty if by none.
func (c *profileCommand) format() (string, error) {
	const folded = "folded"
	if !c.Folded {
		return c.Format, nil
	}
	if c.Format != "" && c.Format != folded {
		return "", fmt.Errorf("-f and --format %s contradict each other", c.Format)
	}
	return folded, nil
}

func (c *profileCommand) duration() (time.Duration, error) {
	if c.Duration != nil && *c.Duration == 0 {
		return 0, errors.New("a duration of 0 measures nothing: leave it out to go on until Ctrl-C")
	}
	return time.Duration(orZero(c.Duration)), nil
}

// orZero returns the value of a flag that may not have been given.
func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
