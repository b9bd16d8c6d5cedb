package main

import (
	"context"
	"fmt"
)

// helpCommand implements "fulgur help", as in git and go.
type helpCommand struct {
	Command string `arg:"" optional:"" complete:"command" help:"The command to explain. Default: list all commands."`
}

// Help returns the text of fulgur help --help besides the arguments.
func (*helpCommand) Help() string {
	return `Prints the same text as fulgur COMMAND --help.

Examples:

    # all flags of fulgur profile, with examples
    fulgur help profile
`
}

func (c *helpCommand) run(_ context.Context, env environment) (int, error) {
	args := []string{"--help"}
	if c.Command != "" {
		args = []string{c.Command, "--help"}
	}
	_, err := parse(args, env.stdout, env.stderr)
	return 0, err
}

// whereHelpIs returns the line that follows an error in the command line args. If
// the user asked for help on an unknown command, it names the list of commands.
func whereHelpIs(args []string) string {
	if len(chosen(args)) == 1 && args[0] != "help" {
		return fmt.Sprintf("See fulgur %s --help.", args[0])
	}
	return "See fulgur --help, or fulgur COMMAND --help."
}
