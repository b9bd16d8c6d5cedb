package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/capture/trigger"
	"fulgur/internal/files/atomicfile"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile/output"
)

// incidents is the directory of the files of a flight recorder. It implements destination. Except for Open and
// Close, its methods belong to the writer.
type incidents struct {
	options *FlightOptions
	format  output.Format
	ending  string
	written int // files
}

// incidentName matches the names of files of flight recorders: time (UTC), trigger and, if that is taken, a
// number.
var incidentName = regexp.MustCompile(`^\d{8}T\d{6}\.\d{3}Z-[a-z]+(\.\d+)?\.(json\.gz|html)$`)

// newIncidents returns the directory that o names.
func newIncidents(o *FlightOptions) (*incidents, error) {
	if o.Output == "" || output.IsStream(o.Output) || output.IsURL(o.Output) {
		return nil, usage.Errorf("a flight recorder writes files into a directory: name it with %s, for example %[1]s incidents/", usage.Output)
	}
	f, err := o.format()
	if err != nil {
		return nil, err
	}
	return &incidents{options: o, format: f, ending: f.Endings[0]}, nil
}

// Open implements destination. It makes the directory, and checks that files can be written there.
func (d *incidents) Open(context.Context) error {
	dir := d.options.Output
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make the directory of recordings: %w", err)
		}
	case err != nil:
		return fmt.Errorf("the directory of recordings: %w", err)
	case !info.IsDir():
		return usage.Errorf("%s is not a directory: a flight recorder writes a file for each trigger", plain.Terminal(dir))
	}
	probe, err := atomicfile.CreateNew(filepath.Join(dir, "fulgur-writes-here"+d.ending))
	if err != nil {
		return err
	}
	return probe.Abort()
}

// Close implements destination.
func (*incidents) Close() error { return nil }

// write writes the file of a firing, which appears complete or not at all, and removes surplus ones. It returns
// the path.
func (d *incidents) write(fired trigger.Firing, w Window) (string, error) {
	at := wallClock(fired.At).UTC()
	stem := filepath.Join(d.options.Output, at.Format("20060102T150405.000Z-")+fired.Name)
	for n := 1; ; n++ {
		path := stem + d.ending
		if n > 1 {
			path = fmt.Sprintf("%s.%d%s", stem, n, d.ending)
		}
		err := d.create(path, w)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		d.written++
		return path, d.remove()
	}
}

// create writes a new file. It fails with [fs.ErrExist] if the file exists.
func (d *incidents) create(path string, w Window) error {
	out, err := atomicfile.CreateNew(path)
	if err != nil {
		return err
	}
	if err := d.format.Write(out, w.Profile, w.Timeline, d.options.output(), w.Value); err != nil {
		return errors.Join(err, out.Abort())
	}
	return out.Commit()
}

// olderIncident compares names of files by their times, and then by their numbers.
func olderIncident(a, b string) int {
	key := func(name string) (at string, number int) {
		if m := incidentName.FindStringSubmatch(name); m != nil {
			number, _ = strconv.Atoi(strings.TrimPrefix(m[1], ".")) // 0 without a number
		}
		at, _, _ = strings.Cut(name, "-")
		return at, number
	}
	atA, numberA := key(a)
	atB, numberB := key(b)
	return cmp.Or(cmp.Compare(atA, atB), cmp.Compare(numberA, numberB), cmp.Compare(a, b))
}

// remove removes the oldest files beyond the limit, also those of earlier runs.
func (d *incidents) remove() error {
	entries, err := os.ReadDir(d.options.Output)
	if err != nil {
		return fmt.Errorf("look for older recordings: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && incidentName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, olderIncident)
	for len(names) > d.options.MaxFiles {
		if err := os.Remove(filepath.Join(d.options.Output, names[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the oldest recording: %w", err)
		}
		names = names[1:]
	}
	return nil
}
