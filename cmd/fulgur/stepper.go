package main

import (
	"context"
	"os"

	"fulgur/internal/branches"
)

// stepperCommand is the process that single-steps for "fulgur bolt", which runs it.
type stepperCommand struct{}

func (stepperCommand) run(_ context.Context, env environment) (exitCode int, err error) {
	return 0, branches.RunStepper(os.Stdin, env.stdout)
}
