package main

import (
	"context"
	"errors"
	"os"

	"fulgur/internal/profile"
	"fulgur/internal/session"
	"fulgur/internal/ui/terminal"
	"fulgur/internal/ui/top"
)

// screen returns standard output if it is a terminal that can show a screen, and standard
// input one that has keys.
func (e environment) screen() (out *os.File, ok bool) {
	out, ok = e.stdout.(*os.File)
	return out, ok && isScreen(out) && isTerminal(os.Stdin)
}

// isColored reports whether a screen has colors.
func isColored() bool { return os.Getenv("NO_COLOR") == "" }

// errNoScreen is the error of --tui without a terminal.
var errNoScreen = errors.New("--tui needs a terminal as standard input and output")

// explore shows a profile on the terminal until the user quits, even if ctx has ended: the
// user may have ended the measurement.
func explore(ctx context.Context, out *os.File, o top.Options, p *profile.Profile) error {
	ctx, stop := interruptible(context.WithoutCancel(ctx))
	defer stop()
	screen, err := terminal.Open(os.Stdin, out)
	if err != nil {
		return err
	}
	return errors.Join(top.Show(ctx, screen, o, p), screen.Close())
}

// explore measures, and shows the profile on the terminal.
func (c *profileCommand) explore(ctx context.Context, env environment, o session.ProfileOptions) (int, error) {
	out, ok := env.screen()
	if !ok {
		return exitUsage, usageError{errNoScreen}
	}
	var taken *profile.Profile
	code, err := session.Run(ctx, &o.Options, o.Subject(), session.SinkFunc(func(_ context.Context, w session.Window) error {
		taken = w.Profile.Only(w.Value)
		return nil
	}))
	if err != nil || taken == nil || len(taken.Samples) == 0 { // the summary says why
		return code, err
	}
	return code, explore(ctx, out, top.Options{Title: o.Target.String(), Colored: isColored(), Native: c.Native}, taken)
}
