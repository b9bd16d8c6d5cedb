package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/alecthomas/kong"
)

// helpCommand is for those who ask as they ask git and go.
type helpCommand struct {
	Command string `arg:"" optional:"" complete:"command" help:"The command to explain. Default: list all commands."`
}

// Help is what fulgur help --help says beside the arguments.
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

// whereHelpIs is the line that follows an error in the command line args. Who asked
// for help of what is no command wants the list of those that are.
func whereHelpIs(args []string) string {
	parser, err := newParser(new(commands), io.Discard, io.Discard, func() {})
	if err == nil && len(args) > 0 && args[0] != "help" && slices.ContainsFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == args[0] }) {
		return fmt.Sprintf("See fulgur %s --help.", args[0])
	}
	return "See fulgur --help, or fulgur COMMAND --help."
}
