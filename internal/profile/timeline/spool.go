package timeline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
)

// spool is a file, or memory, to which chunks are appended.
type spool struct {
	file    storage
	writes  int // size of a write, in bytes
	written int64
	pending []byte // appended but not yet written
}

// storage holds what a spool has written.
type storage interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// The sizes of writes, in bytes. In memory, a write allocates a block.
const (
	fileWrites   = 1 << 20
	memoryWrites = 32 << 10
)

// memory is a storage in memory, which grows by a block with each write.
type memory struct {
	blocks [][]byte
	ends   []int64 // of the blocks
}

// WriteAt appends a block. It implements [io.WriterAt] for consecutive writes only.
func (m *memory) WriteAt(b []byte, at int64) (int, error) {
	if len(b) > 0 {
		m.blocks = append(m.blocks, append([]byte(nil), b...))
		m.ends = append(m.ends, at+int64(len(b)))
	}
	return len(b), nil
}

// ReadAt implements [io.ReaderAt].
func (m *memory) ReadAt(b []byte, at int64) (n int, err error) {
	for i := sort.Search(len(m.ends), func(i int) bool { return m.ends[i] > at }); i < len(m.blocks) && n < len(b); i++ {
		from := at + int64(n) - (m.ends[i] - int64(len(m.blocks[i])))
		n += copy(b[n:], m.blocks[i][from:])
	}
	if n < len(b) {
		return n, io.ErrUnexpectedEOF
	}
	return n, nil
}

// Close frees the memory.
func (m *memory) Close() error {
	m.blocks, m.ends = nil, nil
	return nil
}

// append appends b and returns its offset in the file.
func (s *spool) append(b []byte) (at int64, err error) {
	at = s.written + int64(len(s.pending))
	s.pending = append(s.pending, b...)
	if len(s.pending) >= s.writes {
		err = s.flush()
	}
	return at, err
}

// flush writes pending data.
func (s *spool) flush() error {
	n, err := s.file.WriteAt(s.pending, s.written)
	s.written += int64(n)
	s.pending = s.pending[:0]
	if err != nil {
		return fmt.Errorf("keep events in a temporary file: %w (set TMPDIR to use another directory)", err)
	}
	return nil
}

// stream holds the events of one kind of one thread as varints. The first of each event
// is its time relative to the previous event. Threads repeat what they do, so most
// numbers take one or two bytes.
type stream struct {
	buf    []byte
	chunks []chunk
	last   int64 // time of the last event
}

// chunk is a part of a stream in the spool.
type chunk struct {
	at   int64
	size int
}

// Most threads have few events, and a few have most. Buffers grow with the events of
// their thread.
const (
	minBuffer = 256
	maxBuffer = 8 << 10
)

// add appends an event. text, if any, follows its fields.
func (s *stream) add(to *spool, time int64, text []byte, fields ...uint64) error {
	s.buf = binary.AppendVarint(s.buf, time-s.last)
	s.last = time
	for _, f := range fields {
		s.buf = binary.AppendUvarint(s.buf, f)
	}
	s.buf = append(s.buf, text...)
	if len(s.buf) < min(minBuffer<<min(len(s.chunks), 8), maxBuffer) {
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

// reader reads the events of a flushed stream.
type reader struct {
	file   io.ReaderAt
	chunks []chunk // not read yet
	buf    []byte  // rest of the current chunk
	store  []byte
	last   int64
}

// next reads an event's time and fields. ok is false at the end.
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
		return 0, false, errChanged
	}
	r.buf = r.buf[n:]
	return r.last, true, nil
}

// texts reads n texts of the event, each with its length before it.
func (r *reader) texts(n uint64) (all []string, err error) {
	for range n {
		size, head := binary.Uvarint(r.buf)
		if head <= 0 || size > uint64(len(r.buf)-head) {
			return nil, errChanged
		}
		all = append(all, string(r.buf[head:head+int(size)]))
		r.buf = r.buf[head+int(size):]
	}
	return all, nil
}

// errChanged means that another program wrote to the temporary file.
var errChanged = errors.New("read events back from a temporary file: it was changed")
