package main

import (
	"context"
	"fmt"
	"strings"

	"fulgur/internal/offline"
	"fulgur/internal/profile/report"
)

// reportCommand describes a profile in sentences.
type reportCommand struct {
	File string `arg:"" complete:"file" missing:"give a profile, or - for standard input" help:"The profile, in any format that fulgur convert reads; - is standard input."`

	Question string `arg:"" optional:"" complete:"question" help:"A question to answer instead: functions, callers, callees, paths, threads, waits, lines, instructions or timeline."`
	Function string `arg:"" optional:"" help:"The function that callers, callees, paths, lines and instructions are about: its name as tables show it, or else a regular expression (RE2)."`

	Value string `placeholder:"TYPE" group:"contents" help:"Report on this value, for example off-cpu. Default: the profile's default value."`
	filterFlags
	Top    *count `placeholder:"N" group:"output" help:"List the N hottest functions, or N rows of an answer. Default: 20."`
	Slices *count `placeholder:"N" group:"output" help:"Divide a timeline into N slices of time, at most 1000. Default: 10."`
	Format string `enum:"text,md,json" default:"text" placeholder:"NAME" group:"output" help:"Output format: text, the default, md (Markdown) or json."`
	nativeFlag
	Output string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE. - is standard output, the default."`
	Symfs  string `placeholder:"DIR" group:"output" help:"Look for binaries and debug files in DIR first, as if it were the root directory."`
	Quiet  bool   `short:"q" group:"output" help:"Do not print warnings to standard error."`
}

// Help returns the text of fulgur report --help besides the flags.
func (*reportCommand) Help() string {
	return `Describes a profile in sentences with numbers: the hottest code, the waits and the losses.
Then it lists the hottest functions, the heaviest stacks, and losses with their remedies.
docs/report.md documents the rules behind the sentences, and the JSON, which is stable.

With a question, it answers that instead, in a table:

` + questions() + `

Examples:

    fulgur report cpu.pb.gz

    fulgur report cpu.pb.gz callers malloc
    fulgur report recording.json.gz waits
    fulgur report --time 10,20 recording.json.gz timeline

    # for a program, or an assistant
    fulgur report --format json flame.html
`
}

// questions returns the lines of the help about questions.
func questions() string {
	var b strings.Builder
	for _, q := range report.Questions {
		name := q.Name
		switch {
		case q.OfFunction:
			name += " FUNC"
		case q.OfAny:
			name += " [FUNC]"
		}
		fmt.Fprintf(&b, "    %-18s %s\n", name, q.Help)
	}
	return b.String()
}

func (c *reportCommand) run(ctx context.Context, env environment) (int, error) {
	functions := uint64(report.Functions)
	if c.Top != nil {
		functions = uint64(*c.Top)
	}
	filters, err := c.list()
	if err != nil {
		return exitUsage, err
	}
	return offline.Report(ctx, offline.ReportOptions{
		Input: c.File, Filters: filters, Value: c.Value, Symfs: c.Symfs, Functions: int(functions), Question: c.Question, Function: c.Function,
		Slices: int(orZero(c.Slices)), Format: c.Format, Output: c.Output,
		Stdout: env.stdout, Stderr: env.stderr, Quiet: c.Quiet, Native: c.Native, Columns: columns(env.stdout),
	})
}
