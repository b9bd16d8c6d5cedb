package clidoc

import (
	"fmt"
	"io"
	"strings"
)

// WriteFish writes a completion script for fish.
func (p *Program) WriteFish(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `# Completion of %[1]s for fish, written by "%[1]s completion fish".

# Whether the words before the cursor choose this command, and what follows is
# not another program's command line.
function __%[1]s_command
    set -l words (commandline -opc)
    test "$words[2]" = "$argv[1]"; and not contains -- -- $words
end

# Whether what follows is.
function __%[1]s_launches
    contains -- -- (commandline -opc)
end

# Completes the command line that follows --.
function __%[1]s_launched
    set -l words (commandline -opc) (commandline -ct)
    set -l dashes (contains -i -- -- $words)
    complete -C (string join -- ' ' (string escape -- $words[(math $dashes + 1)..-2]) $words[-1])
end

# Completes the name of an event.
function __%[1]s_events
    %[1]s %[2]s (commandline -ct | string replace -r -- '^(--[^=]*)?=?' '=') 2>/dev/null
end

complete -c %[1]s -f
complete -c %[1]s -n __%[1]s_launches -a '(__%[1]s_launched)'
`, p.Name, EventCompleter)
	for i := range p.flags {
		p.fishFlag(&b, &p.flags[i], "__fish_use_subcommand")
	}
	for i := range p.Commands {
		p.fishCommand(&b, &p.Commands[i])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fishCommand writes the completion of a command, its flags and its arguments.
func (p *Program) fishCommand(b *strings.Builder, c *Command) {
	fmt.Fprintf(b, "\ncomplete -c %s -n __fish_use_subcommand -a %s -d %s\n", p.Name, c.Name, fishQuote(brief(c.Help)))
	condition := fishQuote(fmt.Sprintf("__%s_command %s", p.Name, c.Name))
	for i := range c.flags {
		p.fishFlag(b, &c.flags[i], condition)
	}
	for _, a := range c.arguments {
		if values := p.fishValues(a.kind, a.choices); values != "" {
			fmt.Fprintf(b, "complete -c %s -n %s%s\n", p.Name, condition, values)
		}
	}
}

// fishFlag writes the completion of a flag.
func (p *Program) fishFlag(b *strings.Builder, f *option, condition string) {
	fmt.Fprintf(b, "complete -c %s -n %s", p.Name, condition)
	if f.short != 0 {
		fmt.Fprintf(b, " -s %c", f.short)
	}
	fmt.Fprintf(b, " -l %s", f.long)
	if f.takesValue() {
		fmt.Fprintf(b, " -r%s", p.fishValues(f.kind, f.choices))
	}
	fmt.Fprintf(b, " -d %s\n", fishQuote(brief(f.help)))
}

// fishValues returns the options of fish's complete that offer values.
func (p *Program) fishValues(k kind, choices []string) string {
	if len(choices) > 0 {
		return " -f -a " + fishQuote(strings.Join(choices, " "))
	}
	return map[kind]string{
		file: " -F", directory: " -f -a '(__fish_complete_directories)'", process: " -f -a '(__fish_complete_pids)'",
		event: " -f -a '(__" + p.Name + "_events)'",
	}[k]
}

// fishQuote quotes s as one word.
func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}
