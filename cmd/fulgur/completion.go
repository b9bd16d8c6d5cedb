package main

import (
	"context"
	"io"

	"github.com/alecthomas/kong"

	"fulgur/internal/ui/clidoc"
)

// completionCommand writes a shell completion script.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" missing:"give a shell: bash, zsh or fish" help:"The shell: bash, zsh or fish."`
}

// Help returns the text of fulgur completion --help besides the arguments.
func (*completionCommand) Help() string {
	return `The script completes commands, flags and their values, names of events, and the command
after "--". Completing tracepoints needs root. Packages of fulgur install it.

Examples:

    # bash, in ~/.bashrc
    source <(fulgur completion bash)

    # zsh, in ~/.zshrc, after compinit
    source <(fulgur completion zsh)

    # fish
    fulgur completion fish > ~/.config/fish/completions/fulgur.fish
`
}

func (c *completionCommand) run(_ context.Context, env environment) (int, error) {
	p, err := commandLine()
	if err != nil {
		return exitFailed, err
	}
	write := map[string]func(io.Writer) error{"bash": p.WriteBash, "zsh": p.WriteZsh, "fish": p.WriteFish}[c.Shell]
	if err := write(env.stdout); err != nil {
		return exitFailed, err
	}
	return 0, nil
}

// commandLine describes fulgur's command line.
func commandLine() (clidoc.Program, error) {
	parser, err := newParser(subcommands, io.Discard, io.Discard, func() {})
	if err != nil {
		return clidoc.Program{}, err
	}
	return clidoc.New(parser.Model, func(node *kong.Node) bool {
		_, launches := node.Target.Addr().Interface().(launcher)
		return launches
	}), nil
}
