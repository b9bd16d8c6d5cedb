package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPage writes docs/machine.md from the checks and the problems of the test machines.
func TestPage(t *testing.T) {
	var b strings.Builder
	fmt.Fprint(&b, `# Problems that fulgur doctor can find

`+"`fulgur doctor`"+` runs these checks, and reports the problems that it finds. Its `+"`--json`"+` output
identifies a check by the ID in parentheses. A problem *stops* commands (they cannot work at all)
or *affects* them (they work, with the loss described).
`+"`fulgur top` and `agent`"+` have the requirements of `+"`profile`"+`. Values and error messages below are
examples. `+"`go test ./internal/doctor -update`"+` writes this page.
`)
	group := ""
	for _, c := range slices.Concat(grounds, trials) {
		if c.group != group {
			group = c.group
			fmt.Fprintf(&b, "\n## %s\n", group)
		}
		for i, p := range possible(&c) {
			if i == 0 {
				fmt.Fprintf(&b, "\n### %s (`%s`)\n", c.title, c.id)
			}
			what := p.What
			if group != groupTried && !strings.HasPrefix(what, "fulgur") { // trials begin with their titles
				what = strings.ToUpper(what[:1]) + what[1:]
			}
			fmt.Fprintf(&b, "\n%s.\n\n", what)
			section(&b, &p)
		}
	}
	golden(t, filepath.Join("..", "..", "..", "docs", "machine.md"), b.String())
}

// section writes the consequences of a problem, and its remedy.
func section(b *strings.Builder, p *Problem) {
	if len(p.Stops) > 0 {
		fmt.Fprintf(b, "- stops: %s\n", sentence(p.Stops))
	}
	switch {
	case len(p.Costs) > 0:
		fmt.Fprintf(b, "- affects %s: %s\n", sentence(p.Costs), p.Lost)
	case len(p.Stops) == 0:
		fmt.Fprintf(b, "- %s\n", p.Lost)
	}
	switch r := p.Remedy; {
	case r.Paste != "" && r.Do != "":
		fmt.Fprintf(b, "- remedy: %s: `%s`\n", r.Do, r.Paste)
	case r.Paste != "":
		fmt.Fprintf(b, "- remedy: `%s`\n", r.Paste)
	case r.Do != "":
		fmt.Fprintf(b, "- remedy: %s\n", r.Do)
	}
}

// possible returns the problems that a check finds on the test machines, one for each of
// its faults.
func possible(c *check) []Problem {
	var found []Problem
	for i := range c.faults {
		alone := *c
		alone.faults = c.faults[i : i+1]
		for _, name := range pageMachines() {
			if p := alone.judge(machine(name)); p != nil && p.FollowsFrom == nil {
				found = append(found, *p)
				break
			}
		}
	}
	return found
}

// pageMachines returns all machines. Machines that lack only privileges come first,
// because their remedies are the most common.
func pageMachines() []string {
	return append([]string{"a user", "CAP_BPF and CAP_PERFMON", "kptr_restrict", "a virtual machine", "a paravirtual machine", "Linux 5.10", "nothing works"}, machineNames()...)
}

// sentence formats a list of commands.
func sentence(list []Command) string {
	switch {
	case len(list) == len(Commands):
		return "all commands"
	case slices.Equal(list, withBPF):
		return "all commands except those with `--via perf` and `--via ptrace`"
	}
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = "`" + string(c) + "`"
	}
	return strings.Join(names, ", ")
}
