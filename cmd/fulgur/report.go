package main

import (
	"context"

	"fulgur/internal/session/offline"
)

// reportCommand says what is in a profile.
type reportCommand struct {
	File string `arg:"" complete:"file" help:"The profile, in any format that fulgur convert reads; - is standard input."`

	Value  string `placeholder:"TYPE" group:"contents" help:"Report on this value, for example off-cpu. Default: the profile's default value."`
	Top    *count `placeholder:"N" group:"output" help:"List the N hottest functions. Default: 20."`
	Format string `enum:"text,md,json" default:"text" placeholder:"NAME" group:"output" help:"Output format: text, the default, md (Markdown) or json."`
	Output string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE. - is standard output, the default."`
	Quiet  bool   `short:"q" group:"output" help:"Do not print warnings to standard error."`
}

// reportedFunctions is the default number of functions in a report.
const reportedFunctions = 20

// Help returns the text of fulgur report --help besides the flags.
func (*reportCommand) Help() string {
	return `Says in sentences what dominates a profile, what it waits for and what is missing, each
with its numbers. Then it lists functions, paths, losses and their remedies. The rules
behind the sentences and the JSON are documented in docs/report.md, and stay stable.

Examples:

    fulgur report cpu.pb.gz

    # for a program, or an assistant
    fulgur report --format json flame.html
`
}

func (c *reportCommand) run(ctx context.Context, env environment) (int, error) {
	functions := uint64(reportedFunctions)
	if c.Top != nil {
		functions = uint64(*c.Top)
	}
	return offline.Report(ctx, offline.ReportOptions{
		Input: c.File, Value: c.Value, Functions: int(functions), Format: c.Format, Output: c.Output,
		Stdout: env.stdout, Stderr: env.stderr, Quiet: c.Quiet,
	})
}
