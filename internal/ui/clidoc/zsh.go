package clidoc

import (
	"fmt"
	"io"
	"strings"
)

// WriteZsh writes a completion script for zsh, to source or to install as _NAME in a
// directory of $fpath.
func (p *Program) WriteZsh(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `#compdef %[1]s
# Completion of %[1]s for zsh, written by "%[1]s completion zsh".

_%[1]s() {
	local -a subcommands=( # zsh has a commands of its own
`, p.Name)
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "\t\t%s\n", zshQuote(c.Name+":"+brief(c.Help)))
	}
	fmt.Fprint(&b, `	)
	if ((CURRENT == 2)); then
		_describe -t commands command subcommands
		return
	fi
	# What follows -- is another program's command line.
	local -i dashes=${words[(i)--]}
	if ((dashes < CURRENT)); then
		shift dashes words
		((CURRENT -= dashes))
		_normal
		return
	fi
	shift words
	((CURRENT--))
	case $words[1] in
`)
	for i := range p.Commands {
		p.zshCommand(&b, &p.Commands[i])
	}
	fmt.Fprintf(&b, `	esac
}

_%[1]s_events() {
	local -a found=(${(f)"$(%[1]s %[2]s "=$PREFIX" 2>/dev/null)"})
	compadd -S '' -- ${(M)found:#*[:/_]}
	compadd -- ${found:#*[:/_]}
}

if [[ $funcstack[1] == _%[1]s ]]; then
	_%[1]s "$@"
else
	compdef _%[1]s %[1]s
fi
`, p.Name, EventCompleter)
	_, err := io.WriteString(w, b.String())
	return err
}

// zshCommand writes the case of a command as a call of _arguments.
func (p *Program) zshCommand(b *strings.Builder, c *Command) {
	fmt.Fprintf(b, "\t%s)\n\t\t_arguments -s -S", c.Name)
	spec := func(s string) { fmt.Fprintf(b, " \\\n\t\t\t%s", zshQuote(s)) }
	for i := range c.flags {
		f := &c.flags[i]
		// A flag that was given is not offered again, by either name.
		before := "(" + strings.Join(f.names(), " ") + ")"
		if f.repeated {
			before = "*"
		}
		for _, name := range f.names() {
			about := "[" + zshEscape(brief(f.help)) + "]"
			switch {
			case !f.takesValue():
				spec(before + name + about)
			case strings.HasPrefix(name, "--"):
				spec(before + name + "=" + about + ":" + zshEscape(f.value) + ":" + p.zshAction(f.kind, f.choices))
			default:
				spec(before + name + "+" + about + ":" + zshEscape(f.value) + ":" + p.zshAction(f.kind, f.choices))
			}
		}
	}
	for _, a := range c.arguments {
		if a.kind == other && len(a.choices) == 0 {
			continue // an explicit "no completion" would also suppress the flags
		}
		which := ""
		if strings.Contains(a.summary, "...") {
			which = "*"
		}
		spec(which + ":" + zshEscape(a.name) + ":" + p.zshAction(a.kind, a.choices))
	}
	fmt.Fprint(b, "\n\t\t;;\n")
}

// zshAction returns the action of _arguments that completes a value, a blank for
// none.
func (p *Program) zshAction(k kind, choices []string) string {
	if len(choices) > 0 {
		return "(" + strings.Join(choices, " ") + ")"
	}
	return map[kind]string{other: " ", file: "_files", directory: "_files -/", process: "_pids", event: "_" + p.Name + "_events"}[k]
}

// zshEscape escapes the separators in a specification of _arguments.
func zshEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(s)
}

// zshQuote quotes s as one word.
func zshQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
