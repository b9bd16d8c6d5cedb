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

	"fulgur/internal/files/tempfile"
	"fulgur/internal/message/usage"
)

// Input is a profile to merge.
type Input struct {
	// Name is used in errors.
	Name string
	// BuildID is the build ID of the profiled binary in hexadecimal, or "" if unknown.
	// The format does not contain it.
	BuildID string
	// R is the profile, in any order. If R can seek, it is checked first and then read again.
	R io.Reader
}

// MergeOptions configures [Merge]. The zero value selects good defaults.
type MergeOptions struct {
	// Force merges profiles of different binaries.
	Force bool
	// Lines is the number of lines of an unsorted input to sort in memory at a time. 0 means
	// 250,000, about 20 MB.
	Lines int
}

// BuildIDError reports profiles of different binaries.
type BuildIDError struct {
	// Name and BuildID are from the first profile with a known build ID, Other and OtherID
	// from the first profile with a different one.
	Name, BuildID, Other, OtherID string
}

// Error implements error.
func (e *BuildIDError) Error() string {
	return fmt.Sprintf("%s is a profile of the binary with build ID %s, %s of build ID %s: profiles of different binaries do not add up (%s merges them)",
		e.Name, e.BuildID, e.Other, e.OtherID, usage.Force)
}

// Merge writes the sum of profiles to w, in memory independent of their size. Sorted inputs,
// as written by this package, are merged while they are read; other inputs are first sorted
// in temporary files. Merge writes nothing until it has checked all inputs that can seek.
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

// merger collects sorted sequences.
type merger struct {
	lines     int
	sequences []sequence[Line]
	runs      []*os.File

	basic, branches string // names of inputs with S lines, and with branches
}

func (m *merger) close() {
	for _, f := range m.runs {
		_ = f.Close() // it is already unlinked
	}
}

// add adds an input.
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
				return m.addSequence(lineSequence{NewReader(in.R, in.Name)})
			}
		}
	}
	return m.sort(in)
}

// check reads an input to its end and reports whether it is sorted.
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

// note records the kind of a line.
func (m *merger) note(in Input, l Line) {
	switch l.Kind {
	case KindEvent: // compatible with both
	case KindSample:
		m.basic = in.Name
	default:
		m.branches = in.Name
	}
}

// sort splits an input into sorted runs.
func (m *merger) sort(in Input) error {
	r := NewReader(in.R, in.Name)
	var chunk []Line
	names := 0 // bytes of event names in chunk
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

// maxNames bounds the bytes of event names that are sorted in memory at a time. A real
// profile names a few events; a crafted one may name an event in each line.
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

// addSequence adds a sorted sequence. If there are too many, it merges them into one.
func (m *merger) addSequence(s sequence[Line]) error {
	m.sequences = append(m.sequences, s)
	if len(m.sequences) < maxFanIn {
		return nil
	}
	all, runs := m.sequences, m.runs
	m.sequences, m.runs = nil, nil
	err := m.spool(func(w io.Writer) error { return writeSums(w, mergeSorted(all, compareLines)) })
	for _, f := range runs {
		_ = f.Close()
	}
	return err
}

// spool adds the output of write as a run.
func (m *merger) spool(write func(io.Writer) error) error {
	f, err := tempfile.Create()
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
	return m.addSequence(lineSequence{NewReader(f, "temporary file")})
}

func (m *merger) write(w io.Writer) error {
	return writeSums(w, mergeSorted(m.sequences, compareLines))
}

// writeSums writes sorted lines and adds up equal ones.
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

// lineSequence reads the lines of a profile.
type lineSequence struct{ r *Reader }

func (s lineSequence) next() (Line, error) { return s.r.Next() }
