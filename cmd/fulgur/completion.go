package main

import (
	"context"
	"io"

	"fulgur/internal/ui/clidoc"
)

// completionCommand writes a shell completion script.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" missing:"give a shell: bash, zsh or fish" help:"The shell: bash, zsh or fish."`
}

// Help returns the text of fulgur completion --help besides the arguments.
func (*completionCommand) Help() string {
	return `The script completes commands, flags and their values, processes, names of events, and the
command after "--". It gets these words from fulgur itself, so it fits every version. Completing tracepoints
needs root. Packages of fulgur install it.

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
	script, err := clidoc.Script("fulgur", c.Shell)
	if err != nil {
		return exitFailed, err
	}
	if _, err := io.WriteString(env.stdout, script); err != nil {
		return exitFailed, err
	}
	return 0, nil
}
