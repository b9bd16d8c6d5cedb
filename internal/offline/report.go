package offline

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/annotate"
	"fulgur/internal/profile/code"
	"fulgur/internal/profile/filter"
	"fulgur/internal/profile/output"
	"fulgur/internal/profile/report"
	"fulgur/internal/symbols/symbolize"
)

// ReportOptions describe a report of a profile.
type ReportOptions struct {
	// Input is the file to read, "-" for standard input, in any format that [Convert]
	// reads.
	Input string
	// Filters select samples, and leave out frames.
	Filters filter.List
	// Symfs is a directory with a copy of the measured system's files, or "".
	Symfs string
	// Value is the type of the value to report on; empty means the profile's default.
	Value string
	// Functions is the number of functions to list, or of the rows of an answer.
	Functions int
	// Question is the name of a question to answer instead, see [report.Questions], or "". Function is
	// the function that it is about, see [report.Ask].
	Question, Function string
	// Slices is the number of slices of time of an answer that has some, 0 for the default.
	Slices int
	// Format is "text", "md" or "json".
	Format string
	// Output is the file to write; "-" or empty means Stdout.
	Output string
	// Stdout receives data, Stderr everything else.
	Stdout, Stderr io.Writer
	// Columns is the width of the terminal, to which text is wrapped; 0 if Stdout is none.
	Columns int
	// Native counts each stack for its leaf, even if that is an interpreter's function.
	Native bool
	// Quiet suppresses warnings.
	Quiet bool
}

// Report writes what an expert would say about a profile. The exit code is 0, 2 with a usage
// error, or 1 with another one.
func Report(ctx context.Context, o ReportOptions) (exitCode int, err error) {
	if err := checkSymfs(o.Symfs); err != nil {
		return 2, err
	}
	question, err := o.question()
	if err != nil {
		return 2, err
	}
	warn := warnOn(o.Stderr, o.Quiet)
	finder, err := newFinder(o.Symfs)
	if err != nil {
		return 1, err
	}
	times := timesFor(o.Filters, noTimes)
	if question.OfTimes {
		times = allTimes
	}
	in, err := readInput(ctx, o.Input, o.Symfs, "", times, warn)
	if err == nil && times == noTimes && question.Name == "" && len(o.Filters) == 0 && len(in.profile.Meta.Triggers) > 0 && o.Input != "-" {
		// The report begins with the time around the trigger.
		err = in.Close()
		if err == nil {
			in, err = readInput(ctx, o.Input, o.Symfs, "", allTimes, func(error) {})
		}
	}
	if err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if question.OfTimes && in.line == nil {
		return 2, usage.Errorf("%s", noTimesIn(o.Input))
	}
	choice := report.Choice{Rows: o.Functions, Of: o.Function, Native: o.Native, Slices: cmp.Or(o.Slices, report.DefaultSlices)}
	if in.line != nil {
		choice.Offset = -in.line.Start
	}
	if err := in.filter(o.Input, o.Filters); err != nil {
		return exitCodeOf(ctx, err)
	}
	p := in.profile.InBase()
	value, err := chooseValue(p, o.Value)
	if err != nil {
		return 2, err
	}
	if o.Value == "" {
		value = report.First(p, value)
		warnEvents(p, value, warn)
	}
	out, err := output.Create(ctx, o.Output, o.Stdout)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, out.Abort()) }()
	if err := output.Until(ctx, out, func(w io.Writer) (err error) {
		choice.Value = value
		if choice.Times = in.line; in.line != nil {
			choice.Offset += in.line.Start
		}
		library := code.NewLibrary(ctx, finder, symbolize.Options{})
		library.OnlyProven()
		defer func() { err = errors.Join(err, library.Close()) }()
		choice.Assembly = func(places map[annotate.Place]annotate.Weight) []code.Assembly {
			return library.Disassemble(ctx, p, places)
		}
		text, err := o.text(p, question, choice)
		if err != nil {
			return err
		}
		return o.write(w, text)
	}); err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	if err := out.Commit(); err != nil {
		return 1, err
	}
	return 0, nil
}

// question returns the question to answer; its name is empty if there is none.
func (o *ReportOptions) question() (report.Question, error) {
	if o.Question == "" {
		if o.Slices != 0 {
			return report.Question{}, usage.Errorf("%s is for the question timeline", usage.Slices)
		}
		return report.Question{}, nil
	}
	q, ok := report.FindQuestion(o.Question)
	switch {
	case !ok:
		return q, usage.Errorf("no question %q; there are %s", o.Question, strings.Join(report.QuestionNames(), ", "))
	case q.OfFunction && o.Function == "":
		return q, usage.Errorf("%s of which function? Give its name, or a regular expression", q.Name)
	case o.Slices != 0 && !q.OfTimes:
		return q, usage.Errorf("%s has no slices of time: leave out %s", q.Name, usage.Slices)
	case o.Slices > report.MaxSlices:
		return q, usage.Errorf("%s: at most %d", usage.Slices, report.MaxSlices)
	case !q.OfFunction && !q.OfAny && o.Function != "":
		return q, usage.Errorf("%s is not about a function: leave out %q", q.Name, o.Function)
	}
	return q, nil
}

// document is a report or an answer.
type document interface {
	WriteText(io.Writer) error
	WriteMarkdown(io.Writer) error
	WriteJSON(io.Writer) error
}

// text returns the report, or the answer to a question.
func (o *ReportOptions) text(p *profile.Profile, q report.Question, c report.Choice) (document, error) {
	if q.Name == "" {
		r := report.New(p, c.Value, o.Functions, o.Native)
		if c.Times == nil || len(o.Filters) > 0 {
			return r, nil
		}
		err := r.Incident(c.Times)
		return r, err
	}
	return report.Ask(p, q, c)
}

// write writes a document in the chosen format.
func (o *ReportOptions) write(w io.Writer, d document) error {
	switch {
	case o.Format == "md":
		return d.WriteMarkdown(w)
	case o.Format == "json":
		return d.WriteJSON(w)
	case output.IsStdout(o.Output) && o.Columns > 0 && o.Question == "":
		return wrapped(w, d, o.Columns)
	}
	return d.WriteText(w)
}

// wrapped writes a report to a terminal with the given number of columns.
func wrapped(w io.Writer, d document, columns int) error {
	var text strings.Builder
	if err := d.WriteText(&text); err != nil {
		return err
	}
	_, err := io.WriteString(w, plain.Wrap(text.String(), columns))
	return err
}
