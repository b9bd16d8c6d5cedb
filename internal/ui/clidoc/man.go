package clidoc

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteManual writes the program's own page for section 1, in the macros of
// groff_man(7). The page has no date and no version, so it changes only with its
// content.
func (p *Program) WriteManual(w io.Writer) error {
	var b strings.Builder
	manHead(&b, p.Name, p.Help)
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.I command\n.RI [ flags ]\n", roff(p.Name))
	examples := manDescription(&b, p.Help, p.detail)
	fmt.Fprint(&b, ".SH COMMANDS\n")
	grouped(&b, p.Commands, func(c *Command) string { return c.group }, func(c *Command) {
		fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(p.Name+"-"+c.Name), roff(c.Help))
	})
	manFlags(&b, p.flags)
	fmt.Fprint(&b, `.SH EXIT STATUS
.TP
0
Success.
.TP
1
The run failed.
.TP
2
Usage error.
.PP
If fulgur runs a command, it exits with the command's exit status.
`)
	manExamples(&b, examples)
	fmt.Fprint(&b, ".SH SEE ALSO\n")
	for i, c := range p.Commands {
		separator := ","
		if i == len(p.Commands)-1 {
			separator = ""
		}
		fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(p.Name+"-"+c.Name), separator)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteCommandManual writes a command's page.
func (p *Program) WriteCommandManual(w io.Writer, c *Command) error {
	var b strings.Builder
	manHead(&b, p.Name+"-"+c.Name, c.Help)
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s %s\n.RI [ flags ]\n", roff(p.Name), roff(c.Name))
	for _, a := range c.arguments {
		fmt.Fprintf(&b, ".I %s\n", roff(strings.NewReplacer("<", "", ">", "").Replace(a.summary)))
	}
	if c.launches {
		fmt.Fprint(&b, "[\\fB\\-\\-\\fP \\fIcommand arg ...\\fP]\n")
	}
	examples := manDescription(&b, c.Help, c.detail)
	if len(c.arguments) > 0 {
		fmt.Fprint(&b, ".SH ARGUMENTS\n")
		for _, a := range c.arguments {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", roff(a.name), roff(a.help))
		}
	}
	manFlags(&b, c.flags)
	manExamples(&b, examples)
	fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(p.Name))
	_, err := io.WriteString(w, b.String())
	return err
}

// manHead writes the title, and the line that whatis(1) shows.
func manHead(b *strings.Builder, name, help string) {
	fmt.Fprintf(b, ".TH %s 1 \"\" %s\n.SH NAME\n%s \\- %s\n", roff(strings.ToUpper(name)), roff(name), roff(name), roff(strings.TrimSuffix(lower(help), ".")))
}

// lower returns s with its first letter in lower case.
func lower(s string) string { return strings.ToLower(s[:min(len(s), 1)]) + s[min(len(s), 1):] }

// manDescription writes the help text without flags and commands, and returns its
// examples.
func manDescription(b *strings.Builder, help, detail string) (examples string) {
	text, examples := split(detail)
	fmt.Fprintf(b, ".SH DESCRIPTION\n%s\n", roff(help))
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if paragraph != "" {
			fmt.Fprintf(b, ".PP\n%s\n", roff(paragraph))
		}
	}
	return examples
}

// manExamples writes examples verbatim, if there are any.
func manExamples(b *strings.Builder, examples string) {
	if examples != "" {
		fmt.Fprintf(b, ".SH EXAMPLES\n.EX\n%s\n.EE\n", roff(examples))
	}
}

// manFlags writes flags by group.
func manFlags(b *strings.Builder, flags []option) {
	fmt.Fprint(b, ".SH OPTIONS\n")
	grouped(b, flags, func(f *option) string { return f.group }, func(f *option) { manFlag(b, f) })
}

// grouped calls write for every item, by group with headings. Items without a group
// come first.
func grouped[T any](b *strings.Builder, items []T, group func(*T) string, write func(*T)) {
	headings := []string{""}
	for i := range items {
		if h := group(&items[i]); !slices.Contains(headings, h) {
			headings = append(headings, h)
		}
	}
	for _, heading := range headings {
		if heading != "" {
			fmt.Fprintf(b, ".SS %s\n", roff(heading))
		}
		for i := range items {
			if group(&items[i]) == heading {
				write(&items[i])
			}
		}
	}
}

// manFlag writes a flag and its help.
func manFlag(b *strings.Builder, f *option) {
	names := f.names()
	for i := range names {
		names[i] = roff(names[i])
	}
	fmt.Fprintf(b, ".TP\n.BR %s", strings.Join(names, ` ", " `))
	if f.takesValue() {
		fmt.Fprintf(b, ` "=\fI%s\fP"`, roff(f.placeholder))
	}
	fmt.Fprintf(b, "\n%s\n", roff(f.help))
}

// split separates the text of a help page from its examples, which are the indented
// lines at its end. It removes their indentation.
func split(detail string) (text, examples string) {
	for _, heading := range []string{"Examples:\n", "Example:\n"} {
		if before, after, ok := strings.Cut(detail, heading); ok {
			return before, strings.ReplaceAll(strings.Trim(after, "\n")[len("    "):], "\n    ", "\n")
		}
	}
	return detail, ""
}

// roff escapes text: hyphens, so that they can be copied, backslashes, and
// characters that would be a request at the beginning of a line.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
