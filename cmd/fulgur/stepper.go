package main

import (
	"context"
	"os"

	"fulgur/internal/capture/stepping"
)

// stepperCommand is the process that single-steps for "fulgur bolt".
// [stepping.Start] runs it.
type stepperCommand struct{}

func (stepperCommand) run(_ context.Context, env environment) (exitCode int, err error) {
	return 0, stepping.Run(os.Stdin, env.stdout)
}
