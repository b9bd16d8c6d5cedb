package main

import (
	"context"
	"encoding/json"
	"os"

	"fulgur/internal/capture/trial"
	"fulgur/internal/doctor"
)

// doctorCommand says what works on this machine.
type doctorCommand struct {
	JSON bool `name:"json" help:"Write it as JSON, for programs."`
}

// Help is what fulgur doctor --help says beside the flags.
func (*doctorCommand) Help() string {
	return `Looks at all that fulgur needs of the machine and of its own rights, and tries out
what reading cannot tell: it loads programs that do nothing and attaches them.
Says for each command whether it will work and what it will lose, and what to do
about it. Run it as fulgur will be run: with sudo, or as the user who has been
given capabilities. The exit code is 0 if fulgur profile works, else 1.

Examples:

    # what works, for root
    sudo fulgur doctor

    # what stops a command, for a script
    fulgur doctor --json | jq '.commands[] | select(.works == "no")'
`
}

func (c *doctorCommand) run(_ context.Context, env environment) (int, error) {
	facts, err := doctor.Read()
	if err != nil {
		return exitFailed, err
	}
	facts.Tried = trial.All()
	report := doctor.Examine(&facts, buildVersion())
	if c.JSON {
		enc := json.NewEncoder(env.stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(report)
	} else {
		err = report.WriteText(env.stdout, isScreen(env.stdout) && os.Getenv("NO_COLOR") == "")
	}
	if err != nil {
		return exitFailed, err
	}
	if report.Works(doctor.Profile) == doctor.No {
		return exitFailed, nil
	}
	return 0, nil
}
