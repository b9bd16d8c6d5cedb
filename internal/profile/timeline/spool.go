package timeline

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// spool is a file that chunks are appended to.
type spool struct {
	file    *os.File
	written int64
	pending []byte // appended, but not written yet
}

// spoolWrites is how much is written at once, in bytes.
const spoolWrites = 1 << 20

// append takes b and returns where in the file it begins.
func (s *spool) append(b []byte) (at int64, err error) {
	at = s.written + int64(len(s.pending))
	s.pending = append(s.pending, b...)
	if len(s.pending) >= spoolWrites {
		err = s.flush()
	}
	return at, err
}

// flush writes what is pending.
func (s *spool) flush() error {
	n, err := s.file.WriteAt(s.pending, s.written)
	s.written += int64(n)
	s.pending = s.pending[:0]
	if err != nil {
		return fmt.Errorf("keep events in a temporary file: %w (TMPDIR chooses another place)", err)
	}
	return nil
}

// A stream is the events of one kind of one thread: numbers, as variable-length
// integers, of which the first of each event is its time less that of the event
// before it. What a thread does repeats: most numbers take one byte or two.
type stream struct {
	buf    []byte
	chunks []chunk
	last   int64 // time of the last event added
}

// chunk is a part of a stream in the spool.
type chunk struct {
	at   int64
	size int
}

// Most threads have few events, and few have most: buffers grow with what
// their thread does.
const (
	leastBuffer = 256
	maxBuffer   = 8 << 10
)

// add appends an event.
func (s *stream) add(to *spool, time int64, fields ...uint64) error {
	s.buf = binary.AppendVarint(s.buf, time-s.last)
	s.last = time
	for _, f := range fields {
		s.buf = binary.AppendUvarint(s.buf, f)
	}
	if len(s.buf) < min(leastBuffer<<min(len(s.chunks), 8), maxBuffer) {
		return nil
	}
	return s.flush(to)
}

// flush moves the buffer to the spool.
func (s *stream) flush(to *spool) error {
	if len(s.buf) == 0 {
		return nil
	}
	at, err := to.append(s.buf)
	s.chunks = append(s.chunks, chunk{at, len(s.buf)})
	s.buf = s.buf[:0]
	return err
}

// reader reads a stream that was flushed, event by event.
type reader struct {
	file   io.ReaderAt
	chunks []chunk // those not read yet
	buf    []byte  // what is left of the current one
	store  []byte
	last   int64
}

// next reads an event's time and fields, and reports whether there was one.
func (r *reader) next(fields []uint64) (time int64, ok bool, err error) {
	for len(r.buf) == 0 {
		if len(r.chunks) == 0 {
			return 0, false, nil
		}
		c := r.chunks[0]
		r.chunks = r.chunks[1:]
		if cap(r.store) < c.size {
			r.store = make([]byte, c.size)
		}
		r.buf = r.store[:c.size]
		if _, err := r.file.ReadAt(r.buf, c.at); err != nil {
			return 0, false, fmt.Errorf("read events back from a temporary file: %w", err)
		}
	}
	delta, n := binary.Varint(r.buf)
	r.last += delta
	for i := range fields {
		var m int
		fields[i], m = binary.Uvarint(r.buf[max(n, 0):])
		if m <= 0 {
			n = 0
			break
		}
		n += m
	}
	if n <= 0 {
		return 0, false, fmt.Errorf("read events back from a temporary file: it was changed")
	}
	r.buf = r.buf[n:]
	return r.last, true, nil
}
