package loop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/message/plain"
)

// QuietWait is how long a command may take to exit after the measurement before the
// user sees a message about the wait.
const QuietWait = 500 * time.Millisecond

// Await waits for a command that is still running after the measurement, which ended
// with err. It returns the run's exit code: 1 if err is not nil, else the command's.
// When ctx ends, it asks the command to exit. It kills a command that was never
// released.
func Await(ctx context.Context, launched *target.Launched, err error, stderr io.Writer, quiet bool) (exitCode int, _ error) {
	err = errors.Join(err, launched.Close())
	interrupted, overdue := ctx.Done(), time.After(QuietWait)
	for {
		select {
		case <-launched.Done():
			code, waitErr := launched.Wait()
			if err := errors.Join(err, waitErr); err != nil {
				return 1, err
			}
			return code, nil
		case <-interrupted:
			interrupted = nil
			if termErr := launched.Terminate(); termErr != nil {
				return 1, errors.Join(err, termErr)
			}
		case <-overdue:
			if err != nil {
				fmt.Fprintln(stderr, "fulgur:", plain.Error(err))
			}
			hint := "Ctrl-C asks it to exit"
			if ctx.Err() != nil {
				hint = "asked to exit; Ctrl-C leaves it running"
			}
			if err != nil || !quiet {
				fmt.Fprintf(stderr, "fulgur: waiting for the command (pid %d) to exit (%s)\n", launched.PID(), hint)
			}
		}
	}
}
