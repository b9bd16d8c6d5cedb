package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The page for people who look for what fulgur needs is made of the table, and
// of the machines that fail it.
func TestPage(t *testing.T) {
	var b strings.Builder
	fmt.Fprint(&b, `# What fulgur needs of a machine

`+"`fulgur doctor`"+` looks at all of this and says what is wrong where it is run; with
`+"`--json`"+` a problem is that of the check with the ID given here. Values are
examples. This page is written by `+"`go test ./internal/doctor -update`"+`.
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
			fmt.Fprintf(&b, "\n%s%s.\n\n", strings.ToUpper(p.What[:1]), p.What[1:])
			section(&b, &p)
		}
	}
	golden(t, filepath.Join("..", "..", "..", "docs", "machine.md"), b.String())
}

// section writes what follows from a problem, and what to do.
func section(b *strings.Builder, p *Problem) {
	switch {
	case len(p.Stops) > 0:
		fmt.Fprintf(b, "- stops %s\n", sentence(p.Stops))
	case len(p.Costs) > 0:
		fmt.Fprintf(b, "- costs %s: %s\n", sentence(p.Costs), p.Lost)
	default:
		fmt.Fprintf(b, "- %s\n", p.Lost)
	}
	switch r := p.Remedy; {
	case r.Paste != "" && r.Do != "":
		fmt.Fprintf(b, "- to do: %s: `%s`\n", r.Do, r.Paste)
	case r.Paste != "":
		fmt.Fprintf(b, "- to do: `%s`\n", r.Paste)
	case r.Do != "":
		fmt.Fprintf(b, "- to do: %s\n", r.Do)
	}
}

// possible returns the problems that a check finds on the machines of the
// tests, one for each of its faults.
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

// pageMachines are all machines, those first on which nothing but rights are
// missing, so that the remedies are those for most people.
func pageMachines() []string {
	return append([]string{"a user", "CAP_BPF and CAP_PERFMON", "kptr_restrict", "nothing works"}, machineNames()...)
}

// sentence lists commands.
func sentence(list []Command) string {
	if len(list) == len(Commands) {
		return "all commands"
	}
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = "`" + string(c) + "`"
	}
	return strings.Join(names, ", ")
}
