package clidoc

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// WriteManual writes the program's own page for section 1, in the macros of
// groff_man(7). The page has no date and no version, so it changes only with its
// content.
func WriteManual(w io.Writer, app *kong.Application) error {
	var b strings.Builder
	manHead(&b, app.Name, app.Help)
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.I command\n.RI [ flags ]\n", roff(app.Name))
	examples := manDescription(&b, app.Node)
	fmt.Fprint(&b, ".SH COMMANDS\n")
	commands := Commands(app)
	grouped(&b, commands, func(c *kong.Node) *kong.Group { return c.Group }, func(c *kong.Node) {
		fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", roff(app.Name+"-"+c.Name), roff(c.Help))
	})
	manFlags(&b, app.Flags)
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
	for i, c := range commands {
		separator := ","
		if i == len(commands)-1 {
			separator = ""
		}
		fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(app.Name+"-"+c.Name), separator)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteCommandManual writes a command's page. launches reports whether the command runs the program that
// follows "--".
func WriteCommandManual(w io.Writer, app *kong.Application, c *kong.Node, launches bool) error {
	var b strings.Builder
	manHead(&b, app.Name+"-"+c.Name, c.Help)
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s %s\n.RI [ flags ]\n", roff(app.Name), roff(c.Name))
	for _, a := range c.Positional {
		fmt.Fprintf(&b, ".I %s\n", roff(strings.NewReplacer("<", "", ">", "").Replace(a.Summary())))
	}
	if launches {
		fmt.Fprint(&b, "[\\fB\\-\\-\\fP \\fIcommand arg ...\\fP]\n")
	}
	examples := manDescription(&b, c)
	if len(c.Positional) > 0 {
		fmt.Fprint(&b, ".SH ARGUMENTS\n")
		for _, a := range c.Positional {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", roff(a.Name), roff(a.Help))
		}
	}
	manFlags(&b, slices.Concat(app.Flags, c.Flags))
	manExamples(&b, examples)
	fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", roff(app.Name))
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
func manDescription(b *strings.Builder, node *kong.Node) (examples string) {
	text, examples := splitExamples(node.Detail)
	fmt.Fprintf(b, ".SH DESCRIPTION\n%s\n", roff(node.Help))
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

// manFlags writes the visible flags by group.
func manFlags(b *strings.Builder, flags []*kong.Flag) {
	fmt.Fprint(b, ".SH OPTIONS\n")
	grouped(b, visible(flags), func(f *kong.Flag) *kong.Group { return f.Group }, func(f *kong.Flag) {
		list := names(f)
		for i := range list {
			list[i] = roff(list[i])
		}
		fmt.Fprintf(b, ".TP\n.BR %s", strings.Join(list, ` ", " `))
		if !f.IsBool() {
			fmt.Fprintf(b, ` "=\fI%s\fP"`, roff(f.FormatPlaceHolder()))
		}
		fmt.Fprintf(b, "\n%s\n", roff(f.Help))
	})
}

// grouped calls write for every item, by group with headings. Items without a group
// come first.
func grouped[T any](b *strings.Builder, items []T, group func(T) *kong.Group, write func(T)) {
	headings, byHeading := []string{""}, map[string][]T{}
	for _, item := range items {
		heading := ""
		if g := group(item); g != nil {
			heading = g.Title
		}
		if !slices.Contains(headings, heading) {
			headings = append(headings, heading)
		}
		byHeading[heading] = append(byHeading[heading], item)
	}
	for _, heading := range headings {
		if heading != "" {
			fmt.Fprintf(b, ".SS %s\n", roff(heading))
		}
		for _, item := range byHeading[heading] {
			write(item)
		}
	}
}

// splitExamples separates the text of a help page from its examples, which are the indented
// lines at its end. It removes their indentation.
func splitExamples(detail string) (text, examples string) {
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
