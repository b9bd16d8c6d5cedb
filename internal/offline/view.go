package offline

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"fulgur/internal/files/ctxfile"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/filter"
	"fulgur/internal/profile/output"
	"fulgur/internal/profile/report"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/ui/view"
)

// ViewOptions describe how to show a profile in a browser.
type ViewOptions struct {
	// Input is the file to show, "-" for standard input, in any format that
	// [Convert] reads. Base, if not empty, is the file to compare with.
	Input, Base string
	// Value is the type of the value to compare or, without Base, to show
	// first in the flame graph. Empty means the profile's default.
	Value string
	// Filters select samples, and leave out frames.
	Filters filter.List
	// By groups the samples; nil keeps the groups of the input.
	By *Groups
	// ShortNames shows the short names of functions first. Native first counts each stack for its leaf in
	// tables, even if that is an interpreter's function.
	ShortNames, Native bool

	// Listen is the address to listen on, 127.0.0.1 if empty; Port the
	// port, any free one if 0. NoOpen opens no browser.
	Listen string
	Port   int
	NoOpen bool

	// Show, if not nil, shows the value of the profile on the terminal. Then there are no
	// pages.
	Show func(ctx context.Context, title string, p *profile.Profile) error

	// Symfs is a directory with a copy of the measured system's files, or "".
	Symfs string

	// Stderr receives the pages' URLs, and warnings unless Quiet is set.
	Stderr io.Writer
	Quiet  bool
}

// View shows a profile in a browser until ctx ends. The exit code is 0, 2 with
// a usage error, or 1 with another one.
func View(ctx context.Context, o ViewOptions) (exitCode int, err error) {
	switch {
	case o.Show != nil && o.Base != "":
		return 2, usage.Errorf("the terminal cannot show a comparison")
	case o.Input == "-" && o.Base == "-":
		return 2, usage.Errorf("only one of the two profiles can be standard input")
	}
	if err := checkSymfs(o.Symfs); err != nil {
		return 2, err
	}
	finder, err := newFinder(o.Symfs)
	if err != nil {
		return 1, err
	}
	warn := warnOn(o.Stderr, o.Quiet)
	in, err := readShown(ctx, o.Input, finder, timesFor(o.Filters, o.times()), warn)
	if err != nil {
		return 1, output.OrInterrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	own, pages := o.dividedFilters()
	if err := in.filter(o.Input, own); err != nil {
		return exitCodeOf(ctx, err)
	}
	if o.times() == noTimes { // only the filters need them
		in.Times = nil
	}
	if in.Times == nil && pages.NeedsTimes() {
		return 2, usage.Errorf("%s", noTimesIn(o.Input))
	}
	o.By.apply(in.Profile, warn)
	shown := view.Options{
		Input: in.Input, Finder: finder, ShortNames: o.ShortNames, Native: o.Native,
		Address: pages.Address(), Listen: o.Listen, Port: o.Port, NoOpen: o.NoOpen, Stderr: o.Stderr,
	}
	if o.Base == "" {
		if shown.Value, err = chooseValue(in.Profile, o.Value); err != nil {
			return 2, err
		}
		if o.Value == "" {
			shown.Value = report.First(in.Profile, shown.Value)
		}
		if o.Show != nil {
			return 0, o.Show(ctx, shown.Input.Name, in.Profile.Only(shown.Value))
		}
	} else {
		base, err := readShown(ctx, o.Base, finder, timesFor(o.Filters, noTimes), warn)
		if err != nil {
			return 1, output.OrInterrupted(ctx, err)
		}
		defer func() { err = errors.Join(err, base.Close()) }()
		if err := base.filter(o.Base, own); err != nil {
			return exitCodeOf(ctx, err)
		}
		o.By.apply(base.Profile, warn)
		shown.Base = &base.Input
		if err := o.choose(&shown); err != nil {
			return 2, err
		}
	}
	if err := view.Serve(ctx, shown); err != nil {
		return 1, err
	}
	return 0, nil
}

// dividedFilters divides the filters into those to apply here, and those in the address of the page.
func (o *ViewOptions) dividedFilters() (own, page filter.List) {
	if o.Show != nil {
		return o.Filters, nil
	}
	own, page = o.Filters.ForPages()
	if o.times() == noTimes {
		times, others := page.Split(filter.Time)
		own, page = append(own, times...), others
	}
	return own, page
}

// times returns the times to show: all, but not in a comparison, with groups or on a terminal.
func (o *ViewOptions) times() wanted {
	if o.Base == "" && o.By == nil && o.Show == nil {
		return allTimes
	}
	return noTimes
}

// shownInput is a profile to show. Its file and its recording stay open.
type shownInput struct {
	view.Input
	file *ctxfile.File
	in   *input
}

// Close closes the file and the recording.
func (s *shownInput) Close() error {
	err := s.file.Close()
	if s.in != nil {
		err = errors.Join(err, s.in.Close())
	}
	return err
}

// filter applies filters.
func (s *shownInput) filter(name string, list filter.List) error {
	if len(list) == 0 {
		return nil
	}
	if err := s.in.filter(name, list); err != nil {
		return err
	}
	s.Profile, s.Times, s.Content = s.in.profile.InBase(), s.in.line, nil
	return nil
}

// readShown reads a profile, with the wanted times.
func readShown(ctx context.Context, path string, finder *debugfile.Finder, times wanted, warn func(error)) (*shownInput, error) {
	f, err := openInput(ctx, path)
	if err != nil {
		return nil, err
	}
	s := &shownInput{file: f}
	if err := s.read(ctx, finder, times, warn); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *shownInput) read(ctx context.Context, finder *debugfile.Finder, times wanted, warn func(error)) error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	in, err := readFile(ctx, s.file, finder, "", times, warn)
	if err != nil {
		return err
	}
	s.in = in
	s.Input = view.Input{Name: filepath.Base(s.file.Name()), Profile: in.profile.InBase(), Format: in.format}
	s.Times = in.line
	// The Firefox Profiler requests missing names, pprof does not.
	if in.format == decode.Firefox || in.format == decode.Pprof && !in.named {
		s.Content = io.NewSectionReader(s.file, 0, info.Size())
	}
	return nil
}

// choose reduces two profiles to compare to one common value.
func (o *ViewOptions) choose(shown *view.Options) error {
	value := comparedValue(o.Value, shown.Base.Profile, shown.Input.Profile)
	for _, in := range []*view.Input{&shown.Input, shown.Base} {
		v, err := chooseValue(in.Profile, value)
		if err != nil {
			return err
		}
		in.Profile = in.Profile.Only(v)
	}
	a, b := shown.Base.Profile.ValueTypes[0], shown.Input.Profile.ValueTypes[0]
	if a != b {
		return usage.Errorf("the profiles have %s in %s and %s in %s: choose the value to compare with %s", a.Type, a.Unit, b.Type, b.Unit, usage.Value)
	}
	return nil
}
