package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/alecthomas/kong"
)

// helpCommand implements "fulgur help", as in git and go.
type helpCommand struct {
	Command string `arg:"" optional:"" complete:"command" help:"The command to explain. Default: list all commands."`
}

// Help returns the text of fulgur help --help besides the arguments.
func (*helpCommand) Help() string {
	return `The same as fulgur COMMAND --help.

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
	parser, err := newParser(new(commands), io.Discard, io.Discard, func() {})
	if err == nil && len(args) > 0 && args[0] != "help" && slices.ContainsFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == args[0] }) {
		return fmt.Sprintf("See fulgur %s --help.", args[0])
	}
	return "See fulgur --help, or fulgur COMMAND --help."
}
