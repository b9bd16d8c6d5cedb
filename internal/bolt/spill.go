package bolt

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"

	"fulgur/internal/files/tempfile"
)

// counter counts records within a memory budget. It counts in a table, and writes the table
// to a temporary file as a sorted run whenever it is full.
type counter struct {
	table *table
	runs  []*os.File
}

func newCounter(budget int) *counter { return &counter{table: newTable(budget)} }

// add counts a record.
func (c *counter) add(k key, count, mispredicted uint32) error {
	if c.table.add(k, count, mispredicted) {
		return nil
	}
	if err := c.spill(); err != nil {
		return err
	}
	c.table.add(k, count, mispredicted) // fits: the table is empty
	return nil
}

// addMany counts a record n times.
func (c *counter) addMany(k key, n uint64) error {
	for ; n > math.MaxUint32; n -= math.MaxUint32 {
		if err := c.add(k, math.MaxUint32, 0); err != nil {
			return err
		}
	}
	return c.add(k, uint32(n), 0)
}

// spill writes the table to a run and empties it.
func (c *counter) spill() error {
	if len(c.runs) == maxFanIn {
		if err := c.joinRuns(); err != nil {
			return err
		}
	}
	run, err := writeRun(func(yield func(record, error) bool) {
		for _, r := range c.table.sorted() {
			if !yield(r, nil) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	c.runs = append(c.runs, run)
	c.table.reset()
	return nil
}

// joinRuns merges all runs into one.
func (c *counter) joinRuns() error {
	sequences, err := c.openRuns()
	if err != nil {
		return err
	}
	run, err := writeRun(mergeSorted(sequences, compareKeys))
	if err != nil {
		return err
	}
	c.closeRuns()
	c.runs = append(c.runs, run)
	return nil
}

// records yields all records in order. A key may occur several times in a row. Do not add
// anything afterwards.
func (c *counter) records() iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		sequences, err := c.openRuns()
		if err != nil {
			yield(record{}, err)
			return
		}
		sequences = append(sequences, &sliceSequence{c.table.sorted()})
		mergeSorted(sequences, compareKeys)(yield)
	}
}

// close removes the temporary files.
func (c *counter) close() {
	c.closeRuns()
	c.table = nil
}

func (c *counter) closeRuns() {
	for _, f := range c.runs {
		_ = f.Close() // it is already unlinked
	}
	c.runs = nil
}

func (c *counter) openRuns() ([]sequence[record], error) {
	sequences := make([]sequence[record], len(c.runs))
	for i, f := range c.runs {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, spillError(err)
		}
		sequences[i] = &fileSequence{r: bufio.NewReaderSize(f, 1<<16)}
	}
	return sequences, nil
}

// writeRun writes sorted records to an unnamed temporary file and adds up neighbors with the
// same key.
func writeRun(records iter.Seq2[record, error]) (*os.File, error) {
	f, err := tempfile.Create()
	if err != nil {
		return nil, spillError(err)
	}
	w := bufio.NewWriterSize(f, 1<<16)
	var last record
	put := func() {
		if last.binary == 0 {
			return
		}
		var b [recordSize]byte
		for i, v := range [...]uint32{last.binary, last.from, last.to, last.end, last.count, last.mispredicted} {
			binary.NativeEndian.PutUint32(b[4*i:], v)
		}
		w.Write(b[:])
	}
	for r, err := range records {
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		if r.key == last.key && last.add(r.count, r.mispredicted) {
			continue
		}
		put()
		last = r
	}
	put()
	if err := w.Flush(); err != nil {
		_ = f.Close()
		return nil, spillError(err)
	}
	return f, nil
}

func spillError(err error) error {
	return fmt.Errorf("traces that exceed the memory budget: %w (set TMPDIR to use another directory)", err)
}

// fileSequence reads a run.
type fileSequence struct{ r *bufio.Reader }

func (s *fileSequence) next() (record, error) {
	var b [recordSize]byte
	if _, err := io.ReadFull(s.r, b[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return record{}, io.EOF
		}
		return record{}, spillError(err)
	}
	u := func(i int) uint32 { return binary.NativeEndian.Uint32(b[4*i:]) }
	return record{key{u(0), u(1), u(2), u(3)}, u(4), u(5)}, nil
}

// sliceSequence reads records in memory.
type sliceSequence struct{ rest []record }

func (s *sliceSequence) next() (record, error) {
	if len(s.rest) == 0 {
		return record{}, io.EOF
	}
	r := s.rest[0]
	s.rest = s.rest[1:]
	return r, nil
}
