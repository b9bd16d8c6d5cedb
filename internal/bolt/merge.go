package bolt

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"slices"
)

// Input is a profile to merge.
type Input struct {
	// Name is used in errors.
	Name string
	// BuildID is the build ID of the binary that the profile is of, in
	// hexadecimal, or "" if it is not known: the format has no place for it.
	BuildID string
	// R is the profile. One that can seek is checked first and then read
	// again; what it is ordered by is found out.
	R io.Reader
}

// MergeOptions are how [Merge] works. The zero value is a good choice.
type MergeOptions struct {
	// Force merges profiles of different binaries.
	Force bool
	// Lines is how many lines are sorted in memory at a time, where an input
	// is not sorted. 0 stands for a quarter of a million, some 20 MB.
	Lines int
}

// BuildIDError reports profiles of different binaries.
type BuildIDError struct {
	// Name and BuildID are of the first profile with a known build ID,
	// Other and OtherID of the first that differs.
	Name, BuildID, Other, OtherID string
}

// Error implements error.
func (e *BuildIDError) Error() string {
	return fmt.Sprintf("%s is of the binary with build ID %s, but %s of %s: profiles of different binaries do not add up (force it if you know better)",
		e.Name, e.BuildID, e.Other, e.OtherID)
}

// Merge writes the sum of profiles to w, in memory that does not depend on
// their size: sorted inputs, as this package writes them, are merged as they
// are read; others are sorted in temporary files first. Nothing is written
// before all that can seek were checked.
func Merge(w io.Writer, inputs []Input, opts MergeOptions) error {
	if err := checkBuildIDs(inputs, opts.Force); err != nil {
		return err
	}
	if opts.Lines <= 0 {
		opts.Lines = 1 << 18
	}
	m := &merger{lines: opts.Lines}
	defer m.close()
	for _, in := range inputs {
		if err := m.add(in); err != nil {
			return err
		}
	}
	if m.basic != "" && m.branches != "" {
		return fmt.Errorf("%s has samples without branches, %s has branches: perf2bolt reads one or the other", m.basic, m.branches)
	}
	return m.write(w)
}

func checkBuildIDs(inputs []Input, force bool) error {
	if force {
		return nil
	}
	var first *Input
	for i := range inputs {
		in := &inputs[i]
		switch {
		case in.BuildID == "":
		case first == nil:
			first = in
		case in.BuildID != first.BuildID:
			return &BuildIDError{first.Name, first.BuildID, in.Name, in.BuildID}
		}
	}
	return nil
}

// merger collects sorted sources.
type merger struct {
	lines   int
	sources []source[Line]
	runs    []*os.File

	basic, branches string // names of inputs that have S lines, or others
}

func (m *merger) close() {
	for _, f := range m.runs {
		_ = f.Close() // it has no name any more
	}
}

// add takes an input in.
func (m *merger) add(in Input) error {
	if seeker, ok := in.R.(io.Seeker); ok {
		start, err := seeker.Seek(0, io.SeekCurrent)
		if err == nil {
			sorted, err := m.check(in)
			if err != nil {
				return err
			}
			if _, err := seeker.Seek(start, io.SeekStart); err != nil {
				return fmt.Errorf("%s: %w", in.Name, err)
			}
			if sorted {
				return m.addSource(lineSource{NewReader(in.R, in.Name)})
			}
		}
	}
	return m.sort(in)
}

// check reads an input through and reports whether it is sorted.
func (m *merger) check(in Input) (sorted bool, err error) {
	r := NewReader(in.R, in.Name)
	sorted = true
	var last Line
	for {
		l, err := r.Next()
		if errors.Is(err, io.EOF) {
			return sorted, nil
		}
		if err != nil {
			return false, err
		}
		m.note(in, l)
		if last.Kind != 0 && compareLines(last, l) > 0 {
			sorted = false
		}
		last = l
	}
}

// note keeps in mind which kinds of lines there are.
func (m *merger) note(in Input, l Line) {
	switch l.Kind {
	case KindEvent: // goes with both
	case KindSample:
		m.basic = in.Name
	default:
		m.branches = in.Name
	}
}

// sort makes sorted runs of an input.
func (m *merger) sort(in Input) error {
	r := NewReader(in.R, in.Name)
	var chunk []Line
	names := 0 // bytes of events' names in chunk
	for {
		l, err := r.Next()
		end := errors.Is(err, io.EOF)
		if err != nil && !end {
			return err
		}
		if !end {
			m.note(in, l)
			chunk = append(chunk, l)
			names += len(l.Event)
		}
		if len(chunk) == m.lines || names > maxNames || end && len(chunk) > 0 {
			slices.SortFunc(chunk, compareLines)
			if err := m.addRun(slices.Values(chunk)); err != nil {
				return err
			}
			chunk, names = chunk[:0], 0
		}
		if end {
			return nil
		}
	}
}

// maxNames is how many bytes of events' names are sorted in memory at a time. A
// profile names a handful of events, a hostile one an event in each line.
const maxNames = 16 << 20

// addRun writes sorted lines to a temporary file and adds it.
func (m *merger) addRun(lines iter.Seq[Line]) error {
	return m.spool(func(w io.Writer) error {
		return writeSums(w, func(yield func(Line, error) bool) {
			for l := range lines {
				if !yield(l, nil) {
					return
				}
			}
		})
	})
}

// addSource adds a sorted source, and when there are many makes one of all.
func (m *merger) addSource(s source[Line]) error {
	m.sources = append(m.sources, s)
	if len(m.sources) < maxFanIn {
		return nil
	}
	all, runs := m.sources, m.runs
	m.sources, m.runs = nil, nil
	err := m.spool(func(w io.Writer) error { return writeSums(w, mergeSources(all, compareLines)) })
	for _, f := range runs {
		_ = f.Close()
	}
	return err
}

// spool adds what write writes as a run.
func (m *merger) spool(write func(io.Writer) error) error {
	f, err := createTemporary()
	if err != nil {
		return spillError(err)
	}
	m.runs = append(m.runs, f)
	w := bufio.NewWriterSize(f, 1<<16)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return spillError(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return spillError(err)
	}
	return m.addSource(lineSource{NewReader(f, "temporary file")})
}

func (m *merger) write(w io.Writer) error {
	return writeSums(w, mergeSources(m.sources, compareLines))
}

// writeSums writes sorted lines, equal ones added up.
func writeSums(w io.Writer, lines iter.Seq2[Line, error]) error {
	out := newLineWriter(w)
	var last Line
	for l, err := range lines {
		if err != nil {
			return err
		}
		if !last.same(l) {
			if out.write(last); out.err != nil {
				return out.err
			}
			last = l
			continue
		}
		if last.Count > math.MaxInt64-l.Count || last.Mispredicted > math.MaxInt64-l.Mispredicted {
			return fmt.Errorf("sum of counts does not fit into 63 bits in %q", last.append(nil))
		}
		last.Count += l.Count
		last.Mispredicted += l.Mispredicted
	}
	out.write(last)
	return out.flush()
}

// lineSource reads lines of a profile.
type lineSource struct{ r *Reader }

func (s lineSource) next() (Line, error) { return s.r.Next() }
