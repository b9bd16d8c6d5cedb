package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"fulgur/internal/capture/oncpu"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/filter"
	"fulgur/internal/profile/output"
	"fulgur/internal/session"
	"fulgur/internal/ui/terminal"
	"fulgur/internal/ui/top"
)

// topCommand has the flags of profile that apply to a screen.
type topCommand struct {
	subjectFlags
	CPU cpus `short:"C" name:"cpu" placeholder:"CPU,..." group:"what" help:"Sample only on these CPUs, for example 0,2-3."`

	Event     string     `short:"e" placeholder:"EVENT" group:"how" help:"Sample this event. Default: cycles, or cpu-clock if there is no cycle counter."`
	Frequency *frequency `short:"F" xor:"rate" placeholder:"HZ" group:"how" help:"Samples per second on each CPU, or max. Default: ${topFrequency}."`
	rateFlag
	Interval seconds `default:"2" placeholder:"TIME" group:"how" help:"Refresh every TIME. Default: 2 seconds."`
	Last     seconds `default:"10" placeholder:"TIME" group:"how" help:"Show the samples of the last TIME. Default: 10 seconds."`
	walkFlags
	limitFlags
	nativeFlag

	By groups `placeholder:"KIND" group:"output" help:"Show containers, Kubernetes pods or systemd units instead of processes: container, pod or unit; or the values of a label, such as an endpoint, that programs set: label=KEY."`
	liveFilters
	Rows  count `default:"20" placeholder:"N" group:"output" help:"If standard output is not a terminal, print the N hottest functions of each interval. Default: 20."`
	Quiet bool  `short:"q" group:"output" help:"Do not print warnings and the summary to standard error."`
}

// topFrequency is odd, to avoid lockstep with timers.
const topFrequency = 199

// Help returns the text of fulgur top --help besides the flags.
func (*topCommand) Help() string {
	return `Samples the whole system, unless a flag chooses a target, and shows the functions with
the most samples in the last seconds. If standard input or output is not a terminal, it
prints the hottest functions of each interval as text.

Keys: up and down select; Enter opens a function's stacks, a stack or a process; Escape
goes back; s and t show functions by self or total samples, p processes or groups, f a flame graph
with the keys of the page; / filters; space freezes the display; ? lists the keys; q quits.

Examples:

    # the whole machine
    sudo fulgur top

    # one process, twice a second
    sudo fulgur top -p 1234 --interval 0.5

    # by container
    sudo fulgur top --by container

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
	shown := top.Options{Title: o.Target.String(), Windows: max(int(c.Last/c.Interval), 1), Native: c.Native, Colored: isColored()}
	filters, err := c.live(&o.Options)
	if err != nil {
		return exitUsage, err
	}
	out, ok := env.screen()
	if !ok {
		return session.Run(ctx, &o.Options, o.Subject(), session.SinkFunc(func(ctx context.Context, w session.Window) error {
			return top.WriteText(output.WaitUntil(ctx, env.stdout), shown, filters.Apply(w.Profile, flame.Key), int(c.Rows))
		}))
	}
	return c.show(ctx, o, out, filters, shown)
}

// options translates the flags.
func (c *topCommand) options() (session.ProfileOptions, error) {
	switch {
	case c.Interval < seconds(session.MinWindow):
		return session.ProfileOptions{}, errors.New("--interval is too short: give at least 0.1 seconds")
	case c.Last < c.Interval:
		return session.ProfileOptions{}, errors.New("--last is shorter than --interval")
	}
	common, err := sessionOptions(c.subjectFlags, profileFlags{walkFlags: c.walkFlags, limitFlags: c.limitFlags, outputFlags: outputFlags{By: c.By, Quiet: c.Quiet}})
	common.Target.CPUs = c.CPU
	rate := cmp.Or(c.rate(c.Frequency), topFrequency)
	common.Every = time.Duration(c.Interval)
	return session.ProfileOptions{Options: common, Config: oncpu.Config{Event: c.Event, Frequency: rate}}, err
}

// show measures and shows the result on a terminal. It prints messages after
// restoring the screen.
func (c *topCommand) show(ctx context.Context, o session.ProfileOptions, out *os.File, filters filter.List, shown top.Options) (exitCode int, err error) {
	if err := session.CheckTarget(&o.Target); err != nil {
		return exitFailed, err // before a screen hides it
	}
	var messages bytes.Buffer
	stderr := o.Stderr
	o.Stderr = &messages
	defer func() {
		_, copyErr := io.Copy(stderr, &messages)
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
		code, err := session.Run(measuring, &o.Options, o.Subject(), session.SinkFunc(func(_ context.Context, w session.Window) error {
			select {
			case windows <- filters.Apply(w.Profile, flame.Key):
			case <-measuring.Done(): // nobody is looking any more
			}
			return nil
		}))
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
