package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"

	"fulgur/internal/branches"
	"fulgur/internal/capture/trial"
	"fulgur/internal/doctor"
)

// doctorCommand shows what works on this machine.
type doctorCommand struct {
	JSON bool `name:"json" help:"Print the result as JSON."`
}

// Help returns the text of fulgur doctor --help besides the flags.
func (*doctorCommand) Help() string {
	return `Checks the machine and fulgur's privileges. To try features of the kernel, it loads and
attaches BPF programs that do nothing. For each command, it shows whether the command works,
which data will be missing, and how to fix this. Run it as you will run fulgur: with sudo, or
as the user with the capabilities. The exit code is 0 if fulgur profile can measure the whole
machine, else 1.

Examples:

    # what works as root
    sudo fulgur doctor

    # the commands that do not work, for a script
    fulgur doctor --json | jq '.commands[] | select(.works == "no")'
`
}

func (c *doctorCommand) run(_ context.Context, env environment) (int, error) {
	facts, err := doctor.Read()
	if err != nil {
		return exitFailed, err
	}
	facts.Tried = trials().Run()
	report := doctor.Examine(&facts, buildVersion())
	if c.JSON {
		enc := json.NewEncoder(env.stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(report)
	} else {
		err = report.WriteText(env.stdout, isScreen(env.stdout) && os.Getenv("NO_COLOR") == "", columns(env.stdout))
	}
	if err != nil {
		return exitFailed, err
	}
	if report.Works(doctor.Profile) == doctor.No {
		return exitFailed, nil
	}
	return 0, nil
}

// trials returns the trials of all areas.
func trials() doctor.Trials {
	all := trial.All()
	maps.Copy(all, branches.Trials())
	return all
}
