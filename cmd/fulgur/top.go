package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/profile"
	"fulgur/internal/session"
	"fulgur/internal/ui/terminal"
	"fulgur/internal/ui/top"
)

// topCommand has the flags of profile that make sense on a screen.
type topCommand struct {
	Duration *seconds `arg:"" optional:"" help:"How long to sample: seconds, or as 1m30s. Without it until q, Ctrl-C or the target's exit."`

	targetFlags
	CPU    cpus `short:"C" name:"cpu" placeholder:"CPU,..." group:"what" help:"Sample on these CPUs only, as 0,2-3."`
	User   bool `short:"U" name:"user-stacks-only" xor:"side" group:"what" help:"Show user stacks only."`
	Kernel bool `short:"K" name:"kernel-stacks-only" xor:"side" group:"what" help:"Show kernel stacks only."`

	Event     string     `short:"e" placeholder:"EVENT" group:"how" help:"Sample this event. Default: CPU cycles, or cpu-clock where they cannot be counted."`
	Frequency *frequency `short:"F" placeholder:"HZ" group:"how" help:"Samples a second on each CPU, or max. Default: ${topFrequency}: more than for a profile, since a window is short."`
	Interval  seconds    `default:"2" placeholder:"TIME" group:"how" help:"Show new samples after each TIME. Default: 2 seconds."`
	Last      seconds    `default:"10" placeholder:"TIME" group:"how" help:"Show the samples of the last TIME. Default: 10 seconds."`
	walkFlags

	Rows  count `default:"20" placeholder:"N" group:"output" help:"Where standard output is no terminal, write the hottest N functions after each interval. Default: 20."`
	Quiet bool  `short:"q" group:"output" help:"No warnings and no summary on standard error."`
}

// topFrequency is odd, as all are that should not march in step with timers.
const topFrequency = 199

// Help is what fulgur top --help says beside the flags.
func (*topCommand) Help() string {
	return `Samples the whole system unless told otherwise, and shows the functions that had the
most samples in the last seconds. Where standard input or output is no terminal, it
writes the hottest functions of each interval as text.

Keys: up and down choose, Enter looks into a function's stacks, a stack or a process,
Escape goes back; s and t sort by a function's own samples or by those of all that it
calls; p shows processes, f functions; / filters; space halts what is shown; q quits.

Examples:

    # what the machine does now
    sudo fulgur top

    # one process, twice a second
    sudo fulgur top -p 1234 --interval 0.5

    # the hottest 5 functions of each minute, to a file
    sudo fulgur top --interval 1m --rows 5 > log
`
}

func (c *topCommand) run(ctx context.Context, env environment) (int, error) {
	o, err := c.options()
	if err != nil {
		return exitUsage, usageError{err}
	}
	env.complete(&o.Options)
	o.Progress = false
	title := o.Target.String()
	out, ok := env.stdout.(*os.File)
	if !ok || !isScreen(out) || !isTerminal(os.Stdin) {
		return session.ProfileWindows(ctx, o, session.Windows{Every: time.Duration(c.Interval), Deliver: func(w session.Window) error {
			return top.WriteText(env.stdout, title, w.Profile, int(c.Rows))
		}})
	}
	windows := max(int(c.Last/c.Interval), 1)
	return c.show(ctx, o, out, top.Options{Title: title, Windows: windows})
}

// options translates the flags.
func (c *topCommand) options() (session.ProfileOptions, error) {
	switch {
	case c.Interval < seconds(session.MinWindow):
		return session.ProfileOptions{}, errors.New("--interval is too short: give 0.1 or more seconds")
	case c.Last < c.Interval:
		return session.ProfileOptions{}, errors.New("--last is shorter than --interval")
	}
	common, err := recording{
		duration: c.Duration, user: c.User, kernel: c.Kernel, walk: c.walkFlags,
		target: c.targetFlags, cpus: c.CPU, output: outputFlags{Quiet: c.Quiet},
	}.options()
	rate := orZero(c.Frequency)
	if rate == 0 {
		rate = topFrequency
	}
	return session.ProfileOptions{Options: common, Event: c.Event, Frequency: uint64(rate)}, err
}

// show measures, and shows it on a terminal. What is said beside comes when the
// screen is given back.
func (c *topCommand) show(ctx context.Context, o session.ProfileOptions, out *os.File, shown top.Options) (exitCode int, err error) {
	if err := target.Check(o.Target); err != nil {
		return exitFailed, err // before a screen hides it
	}
	var said bytes.Buffer
	stderr := o.Stderr
	o.Stderr = &said
	defer func() {
		_, copyErr := io.Copy(stderr, &said)
		err = errors.Join(err, copyErr)
	}()
	screen, err := terminal.Open(os.Stdin, out)
	if err != nil {
		return exitFailed, err
	}
	measuring, stop := context.WithCancel(ctx)
	defer stop()
	windows := make(chan *profile.Profile)
	type outcome struct {
		code int
		err  error
	}
	measured := make(chan outcome, 1)
	go func() {
		code, err := session.ProfileWindows(measuring, o, session.Windows{Every: time.Duration(c.Interval), Deliver: func(w session.Window) error {
			select {
			case windows <- w.Profile:
			case <-measuring.Done(): // nobody looks any more
			}
			return nil
		}})
		measured <- outcome{code, err}
		if err != nil {
			stop() // there is nothing to look at
		}
		close(windows)
	}()
	err = errors.Join(top.Run(measuring, screen, shown, windows), screen.Close())
	stop()
	end := <-measured
	return end.code, errors.Join(end.err, err)
}
