package offline

import (
	"context"
	"errors"
	"io"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile/output"
	"fulgur/internal/profile/report"
)

// ReportOptions describe a report of a profile.
type ReportOptions struct {
	// Input is the file to read, "-" for standard input, in any format that [Convert]
	// reads.
	Input string
	// Symfs is a directory with a copy of the measured system's files, or "".
	Symfs string
	// Value is the type of the value to report on; empty means the profile's default.
	Value string
	// Functions is the number of functions to list.
	Functions int
	// Format is "text", "md" or "json".
	Format string
	// Output is the file to write; "-" or empty means Stdout.
	Output string
	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// Columns is the width of the terminal, to which text is wrapped; 0 if Stdout is none.
	Columns int
	// Quiet suppresses warnings.
	Quiet bool
}

// Report writes what an expert would say about a profile. The exit code is 0, 2 with a usage
// error, or 1 with another one.
func Report(ctx context.Context, o ReportOptions) (exitCode int, err error) {
	if err := checkSymfs(o.Symfs); err != nil {
		return 2, err
	}
	warn := warnOn(o.Stderr, o.Quiet)
	p, err := readProfile(ctx, o.Input, o.Symfs, warn)
	if err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	value, err := chooseValue(p, o.Value)
	if err != nil {
		return 2, err
	}
	if o.Value == "" {
		warnEvents(p, value, warn)
	}
	out, err := output.Create(ctx, o.Output, o.Stdout)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()
	if err := output.Until(ctx, out, func(w io.Writer) error { return o.write(w, report.New(p, value, o.Functions)) }); err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	if err := out.Commit(); err != nil {
		return 1, err
	}
	return 0, nil
}

// write writes a report in the chosen format.
func (o *ReportOptions) write(w io.Writer, r *report.Report) error {
	switch {
	case o.Format == "md":
		return r.WriteMarkdown(w)
	case o.Format == "json":
		return r.WriteJSON(w)
	case output.IsStdout(o.Output) && o.Columns > 0:
		return wrapped(w, r, o.Columns)
	}
	return r.WriteText(w)
}

// wrapped writes a report to a terminal with the given number of columns.
func wrapped(w io.Writer, r *report.Report, columns int) error {
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		return err
	}
	_, err := io.WriteString(w, plain.Wrap(text.String(), columns))
	return err
}
