package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"fulgur/internal/capture/naming"
	"fulgur/internal/files/ctxfile"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/perfdata"
	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/timeline"
	"fulgur/internal/symbols/debugfile"
)

// input is a profile read from a file.
type input struct {
	profile *profile.Profile
	// line is the profile's timeline, nil if not requested or not in the
	// file.
	line     *profile.Timeline
	recorder *timeline.Recorder // line's recorder
	// format is the file's format, empty for perf.data. named means that
	// fulgur looked up the names, because the file has none.
	format decode.Format
	named  bool
}

// Close releases the timeline.
func (in *input) Close() error {
	if in.recorder == nil {
		return nil
	}
	return in.recorder.Close()
}

// readProfile reads the profile at path, or standard input for "-", in any known format, with
// times in nanoseconds and sizes in bytes. It symbolizes profiles without names from the files
// of this machine, and calls warn for files that it cannot read.
func readProfile(ctx context.Context, path, symfs string, warn func(error)) (*profile.Profile, error) {
	in, err := readInput(ctx, path, symfs, "", noTimes, warn)
	if err != nil {
		return nil, err
	}
	return in.profile.InBase(), in.Close()
}

// hasTimes returns an error if the input has no times that a page can show.
func (in *input) hasTimes() error {
	if in.line == nil {
		return usage.Errorf("this input has no times that a page can show: give a recording (.json.gz, .json) or a perf.data file")
	}
	return nil
}

// wanted says from which inputs to read the times.
type wanted int

const (
	noTimes wanted = iota
	// recordedTimes are the times of recordings, which always have them.
	recordedTimes
	allTimes
)

// readInput is readProfile with the unit of folded stacks that state none, such as "us", and with the wanted
// times if the input has them. Units are those of the input. The caller must close the input.
func readInput(ctx context.Context, path, symfs, unit string, times wanted, warn func(error)) (in *input, err error) {
	f, err := openInput(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	finder, err := newFinder(symfs)
	if err != nil {
		return nil, err
	}
	return readFile(ctx, f, finder, unit, times, warn)
}

// checkSymfs rejects a path that is not a directory.
func checkSymfs(symfs string) error {
	if symfs == "" {
		return nil
	}
	info, err := os.Stat(symfs)
	if err != nil {
		return usage.Errorf("%s: %v", usage.Symfs, err)
	}
	if !info.IsDir() {
		return usage.Errorf("%s: %s is not a directory", usage.Symfs, symfs)
	}
	return nil
}

// newFinder returns a finder that looks below the directory symfs first, unless it is empty.
func newFinder(symfs string) (*debugfile.Finder, error) {
	return debugfile.New(debugfile.Config{Root: symfs})
}

// openInput opens the file at path, the first one of a folder that perf record has written, or standard
// input for "-", for random access. Compressed perf.data is unpacked into a temporary file.
func openInput(ctx context.Context, path string) (*ctxfile.File, error) {
	opened, err := ctxfile.Open(ctx, perfdata.FileIn(path))
	if err != nil {
		return nil, err
	}
	f, err := ctxfile.Regular(ctx, opened)
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	plain, err := perfdata.Unpacked(ctx, f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return plain, nil
}

// readFile is readInput of an open file, with debug files from finder.
func readFile(ctx context.Context, f *ctxfile.File, finder *debugfile.Finder, unit string, times wanted, warn func(error)) (*input, error) {
	in, err := readFormat(ctx, f, finder, unit, times, warn)
	if err == nil {
		warnCut(f.Name(), in.profile, warn)
	}
	return in, err
}

// warnCut warns about parts of a file that exceed the limits of package
// profile, or were not understood.
func warnCut(name string, p *profile.Profile, warn func(error)) {
	l := p.Losses
	cut := profile.Losses{profile.LossTooDeep: l[profile.LossTooDeep], profile.LossTooMany: l[profile.LossTooMany], profile.LossLongNames: l[profile.LossLongNames], profile.LossUnnamed: l[profile.LossUnnamed], profile.LossUnlabeled: l[profile.LossUnlabeled], profile.LossUnread: l[profile.LossUnread]}
	warnLosses(name, cut, describe.NounOfProfile(p), warn)
}

// warnLosses calls warn for each loss. of is the noun for samples.
func warnLosses(name string, l profile.Losses, of describe.Noun, warn func(error)) {
	for _, loss := range describe.Losses(l, of) {
		warn(fmt.Errorf("%s: %s", name, loss))
	}
}

// readFormat detects a file's format by its beginning, and reads it.
func readFormat(ctx context.Context, f *ctxfile.File, finder *debugfile.Finder, unit string, times wanted, warn func(error)) (*input, error) {
	var head [8]byte
	if n, _ := f.ReadAt(head[:], 0); perfdata.IsPerfData(head[:n]) { // the other formats' readers report errors
		return readPerfData(ctx, f, finder, times == allTimes, warn)
	}
	d, err := decode.ReadWith(ctx, f, f.Name(), decode.Options{Times: times != noTimes, Unit: unit})
	if err != nil {
		return nil, err
	}
	p := d.Profile
	in := &input{profile: p, format: d.Format}
	linkAddresses(ctx, d, finder)
	unnamed := naming.Unnamed(p)
	if !unnamed && !naming.HasUnnamed(p) {
		if d.Times != nil {
			in.line = d.Times.Timeline(p, func(s profile.StackID) profile.StackID { return s })
		}
		return in, nil
	}
	// Names that were missing where the profile was taken may be here.
	r := naming.Resolver{Profile: p, Finder: finder, Proven: !unnamed}
	in.named = true
	in.profile, err = r.Resolve(ctx)
	if unnamed {
		r.Warn(warn)
	}
	if err == nil && d.Times != nil {
		in.line = d.Times.Timeline(in.profile, r.Stack)
	}
	return in, err
}

// warnOn returns a function that prints problems to w, unless quiet.
func warnOn(w io.Writer, quiet bool) func(error) {
	return func(err error) {
		if !quiet {
			fmt.Fprintln(w, "fulgur:", plain.Error(err))
		}
	}
}

// chooseValue returns the index of the value of p with the type name. If name
// is empty, it returns the default value or else the first one, skipping values
// that are 0 throughout: a recording of waits may have no time on the CPU.
func chooseValue(p *profile.Profile, name string) (int, error) {
	if name == "" {
		return max(0, commonValue(p)), nil
	}
	known := p.ValueNames()
	for i := range known {
		if known[i] == name {
			return i, nil
		}
		known[i] = plain.Terminal(known[i])
	}
	return 0, usage.Errorf("no value %q; the profile has %s", name, strings.Join(known, ", "))
}

// warnEvents names the events of p if it has several, of which the output has only value v.
func warnEvents(p *profile.Profile, v int, warn func(error)) {
	events := p.Events()
	for i, name := range events {
		events[i] = plain.Terminal(name)
	}
	if len(events) > 1 {
		warn(fmt.Errorf("the profile has %d events (%s), and the output has one value, %q: choose another with %s",
			len(events), strings.Join(events, ", "), plain.Terminal(p.ValueTypes[v].Type), usage.Value))
	}
}

// commonValue returns the index in p of a value that all others have, too, and
// that is not 0 in all of them; -1 if there is none.
func commonValue(p *profile.Profile, others ...*profile.Profile) int {
	best := -1
	for i, v := range p.ValueTypes {
		some := p.Total(i) != 0
		for _, other := range others {
			o := slices.Index(other.ValueTypes, v)
			if o < 0 {
				some = false
				break
			}
			some = some || other.Total(o) != 0
		}
		if some && (best < 0 || v.Type == p.Meta.Value) {
			best = i
		}
	}
	return best
}

// comparedValue returns the type of the value to compare in two profiles: name,
// or a common one, or "" if there is none.
func comparedValue(name string, base, changed *profile.Profile) string {
	if name == "" {
		if v := commonValue(changed, base); v >= 0 {
			return changed.ValueTypes[v].Type
		}
	}
	return name
}
