package main

import (
	"context"
	"os"
	"time"

	"fulgur/internal/assistant"
)

// mcpCommand serves assistants.
type mcpCommand struct {
	Dir string `arg:"" complete:"directory" missing:"give the folder for profiles" help:"The folder for profiles. Files outside of it are neither read nor written."`

	AllowCommands bool      `group:"limit" help:"Let the assistant start programs, to measure them. They run with your rights."`
	MaxDuration   seconds   `default:"60" placeholder:"SECONDS" group:"limit" help:"Refuse longer measurements. Default: 60."`
	MaxFrequency  frequency `default:"999" placeholder:"HZ" group:"limit" help:"Refuse higher sampling rates. Default: 999."`
}

// Help returns the text of fulgur mcp --help besides the flags.
func (*mcpCommand) Help() string {
	return `Lets an AI assistant measure this machine and ask about profiles, by the Model Context Protocol
on standard input and output. The assistant's program starts it. docs/assistants.md lists the tools.

Example, for an assistant whose configuration has a list of servers:

    {"mcpServers": {"fulgur": {"command": "sudo", "args": ["fulgur", "mcp", "/var/tmp/profiles"]}}}
`
}

func (c *mcpCommand) run(ctx context.Context, _ environment) (int, error) {
	program, err := os.Executable()
	if err != nil {
		return exitFailed, err
	}
	err = assistant.Serve(ctx, assistant.Options{
		Dir: c.Dir, Commands: c.AllowCommands, MaxDuration: time.Duration(c.MaxDuration), MaxFrequency: uint64(c.MaxFrequency),
		Program: program, Version: buildVersion(), In: os.Stdin, Out: os.Stdout,
	})
	if err != nil {
		return exitFailed, err
	}
	return 0, nil
}
