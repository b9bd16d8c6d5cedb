package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"

	"github.com/alecthomas/kong"

	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/target"
	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/session"
	"fulgur/internal/ui/terminal"
)

// profileCommand has the flags of bcc's profile, by name, and some of perf record's.
type profileCommand struct {
	subjectFlags
	CPU  cpus `short:"C" name:"cpu" placeholder:"CPU,..." group:"what" help:"Sample only on these CPUs, for example 0,2-3."`
	Idle bool `short:"I" name:"include-idle" group:"what" help:"Include samples of idle CPUs."`

	Event     string     `short:"e" placeholder:"EVENT" group:"how" help:"Sample this event. Default: cycles, or cpu-clock if there is no cycle counter."`
	Frequency *frequency `short:"F" placeholder:"HZ" xor:"rate" group:"how" help:"Samples per second on each CPU, or max. Default: ${frequency}. Odd rates avoid lockstep with timers."`
	rateFlag
	Via            string `enum:"auto,bpf,perf,ptrace" default:"auto" placeholder:"METHOD" group:"how" help:"How to sample: bpf uses BPF programs; perf uses perf events alone, which need no root for your own processes (-p, -L or a command), but sample user code only (default event: cpu-clock); ptrace stops threads of your own processes for moments, which needs neither; auto, the default, uses the first of these that is possible."`
	Count          *count `short:"c" placeholder:"N" xor:"rate" group:"how" help:"Sample every Nth event, instead of at a frequency. For clocks, N is in nanoseconds, at least 10000."`
	Wall           bool   `group:"how" help:"Include off-CPU time: the profile shows wall-clock time. The event is cpu-clock."`
	Parallelism    bool   `group:"how" help:"Divide the time of each sample by the number of threads of the target that run at that moment. The profile shows elapsed time: code that runs alone, and so delays all else, counts in full. The event is cpu-clock."`
	Times          bool   `group:"output" help:"Keep the times of samples in a page (.html): its heat map selects a part of the run. Costs more than counting; see docs/flamegraph.md."`
	StackNodes     *count `placeholder:"N" group:"limit" help:"With --times, maximum number of stack nodes to keep; a node is a frame with its callers. Stacks that need more are truncated. Default: ${stackNodes}, a few hundred megabytes."`
	PendingEntries *count `placeholder:"N" group:"limit" help:"With --wall, maximum number of waiting threads to track."`
	TUI            bool   `name:"tui" group:"output" help:"Show the flame graph on the terminal after sampling. ? lists the keys."`

	liveFlags
	profileFlags
}

// profileVars returns values that the help text contains.
func profileVars() kong.Vars {
	return kong.Vars{
		"frequency":    strconv.Itoa(oncpu.DefaultFrequency),
		"topFrequency": strconv.Itoa(topFrequency),
	}
}

// Help returns the text of fulgur profile --help besides the flags.
func (*profileCommand) Help() string {
	return `Samples the CPUs of the whole system, unless a flag chooses a target. With "-- COMMAND
ARG..." at the end, it runs COMMAND, samples it, and exits with its exit code. Data
goes to standard output or FILE, everything else to standard error. Ctrl-C ends the
measurement, asks COMMAND to exit, and writes the result. During the lookup of names,
Ctrl-C skips the rest. While the result waits for the reader of a pipe or for a back
end, Ctrl-C gives up. At other times, a second Ctrl-C kills fulgur; within a tenth of a
second of the first one, it has no effect. If COMMAND runs longer than the duration, fulgur waits for it.

Inlined functions, files and lines come from debug information: in the program, in the
distribution's debug packages, or downloaded from the servers in DEBUGINFOD_URLS.

Examples:

    # the whole machine for 10 seconds, as a flame graph
    sudo fulgur profile -o flame.html 10

    # one process, until Ctrl-C
    sudo fulgur profile -p 1234 -o profile.pb.gz

    # a command from its first instruction to its exit
    sudo fulgur profile -F 999 -o flame.svg -- make -j8

    # a flame graph on the terminal
    sudo fulgur profile --tui -p 1234 10

    # what a build waits for: code that runs while few others do
    sudo fulgur profile --parallelism -o build.html -- make -j8

    # kernel stacks on CPU 2, folded
    sudo fulgur profile -K -C 2 -f 5 > kernel.folded
`
}

func (c *profileCommand) run(ctx context.Context, env environment) (int, error) {
	o, err := c.options()
	if err != nil {
		return exitUsage, usageError{err}
	}
	env.complete(&o.Options)
	if err := c.check(o.Output); err != nil {
		return exitUsage, usageError{err}
	}
	switch {
	case c.TUI:
		return c.explore(ctx, env, o)
	case c.Stream:
		return session.Stream(ctx, o)
	case c.isWindows():
		return c.windows(ctx, o)
	}
	return session.Measure(ctx, o.Options, o.Subject())
}

// options translates the flags.
func (c *profileCommand) options() (session.ProfileOptions, error) {
	common, err := sessionOptions(c.subjectFlags, c.profileFlags)
	common.Times, common.Target.CPUs, common.Via = c.Times, c.CPU, c.Via
	common.StackNodes = uint32(orZero(c.StackNodes))
	return session.ProfileOptions{
		Options: common,
		Config: oncpu.Config{
			Event: c.Event, Frequency: c.rate(c.Frequency), Period: uint64(orZero(c.Count)), Idle: c.Idle, Parallelism: c.Parallelism,
		},
		Wall: c.Wall, PendingEntries: uint32(orZero(c.PendingEntries)),
	}, err
}

// chooseTarget completes t, which already has the IDs or the cgroup, by its scope,
// or by a command.
func chooseTarget(t target.Target, command []string) (target.Target, error) {
	switch {
	case len(t.PIDs) > 0:
		t.Scope = target.Processes
	case len(t.TIDs) > 0:
		t.Scope = target.Threads
	case t.CgroupPath != "", t.Named != profile.GroupNone:
		t.Scope = target.Cgroup
	}
	if len(command) > 0 {
		if t.Scope != target.System {
			return t, errors.New("a command after \"--\" is the target: -p, -L, --cgroup, --container, --pod and --unit cannot be combined with it")
		}
		t.Scope = target.Command
	}
	if t.Children && t.Scope != target.Processes && t.Scope != target.Command {
		return t, errors.New("--children needs -p or a command")
	}
	return t, nil
}

// orZero returns the value of a flag, or the zero value if the flag is absent.
func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := fileOf(w)
	return ok && terminal.Is(f)
}

// columns returns the width of w in characters if it is a terminal, or 0.
func columns(w io.Writer) int {
	if f, ok := w.(forwarded); ok {
		return f.columns
	}
	f, ok := fileOf(w)
	if !ok || !terminal.Is(f) {
		return 0
	}
	width, _ := terminal.Size(f)
	return width
}

// messages is a terminal that wraps messages between words. Each call of Write writes
// whole lines, or updates a line.
type messages struct{ *os.File }

// Write writes text.
func (m messages) Write(text []byte) (int, error) {
	if bytes.ContainsAny(text, "\r\x1b") {
		return m.File.Write(text)
	}
	if _, err := m.WriteString(plain.Wrap(string(text), columns(m.File))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// fileOf returns the file that w writes to, if it is one.
func fileOf(w io.Writer) (*os.File, bool) {
	if m, ok := w.(messages); ok {
		return m.File, true
	}
	f, ok := w.(*os.File)
	return f, ok
}

// isScreen reports whether w is a terminal that can overwrite a line.
func isScreen(w io.Writer) bool {
	if f, ok := w.(forwarded); ok {
		return f.progress
	}
	return os.Getenv("TERM") != "dumb" && isTerminal(w)
}
