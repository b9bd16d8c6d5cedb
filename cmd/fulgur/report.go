package main

import (
	"context"

	"fulgur/internal/offline"
)

// reportCommand describes a profile in sentences.
type reportCommand struct {
	File string `arg:"" complete:"file" missing:"give a profile, or - for standard input" help:"The profile, in any format that fulgur convert reads; - is standard input."`

	Value  string `placeholder:"TYPE" group:"contents" help:"Report on this value, for example off-cpu. Default: the profile's default value."`
	Top    *count `placeholder:"N" group:"output" help:"List the N hottest functions. Default: 20."`
	Format string `enum:"text,md,json" default:"text" placeholder:"NAME" group:"output" help:"Output format: text, the default, md (Markdown) or json."`
	Output string `short:"o" placeholder:"FILE" group:"output" help:"Write to FILE. - is standard output, the default."`
	Symfs  string `placeholder:"DIR" group:"output" help:"Look for binaries and debug files in DIR first, as if it were the root directory."`
	Quiet  bool   `short:"q" group:"output" help:"Do not print warnings to standard error."`
}

// reportedFunctions is the default number of functions in a report.
const reportedFunctions = 20

// Help returns the text of fulgur report --help besides the flags.
func (*reportCommand) Help() string {
	return `Describes a profile in sentences with numbers: the hottest code, the waits and the losses.
Then it lists the hottest functions, the heaviest stacks, and losses with their remedies.
docs/report.md documents the rules behind the sentences, and the JSON, which is stable.

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
		Input: c.File, Value: c.Value, Symfs: c.Symfs, Functions: int(functions), Format: c.Format, Output: c.Output,
		Stdout: env.stdout, Stderr: env.stderr, Quiet: c.Quiet, Columns: columns(env.stdout),
	})
}
