package jitdump

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"unicode/utf8"
)

// Scanner reads a jitdump file that may still grow. The zero Scanner is at its beginning.
type Scanner struct {
	// Malformed and MalformedLines are the numbers of unusable records and line tables, which
	// were skipped. StrayLines is the number of lines elsewhere than their function, which were
	// skipped, too.
	Malformed, MalformedLines, StrayLines uint64

	offset int64            // of the next record
	order  binary.ByteOrder // nil before the header was read
	header [headerSize]byte
	pid    uint32
	err    error // why the rest cannot be read

	debug []byte // a line table whose function has not followed yet; empty if none
	// direct means that a line has an address in the first bytes of its function, and beyond
	// that a line has an address after its function.
	direct, beyond bool
}

// Errors of [Scanner.Scan] after which the file has to be read from its beginning.
var (
	// ErrRewritten means that the file's header has changed.
	ErrRewritten = errors.New("file was rewritten")
	// ErrTruncated means that the file is shorter than before.
	ErrTruncated = errors.New("file was truncated")
)

// PID returns the process that wrote the file, as that process saw its ID, or 0 if the
// header was not read yet.
func (s *Scanner) PID() int { return int(s.pid) }

// Offset returns the number of bytes that were read or skipped.
func (s *Scanner) Offset() int64 { return s.offset }

// Order returns the file's byte order, or nil if the header was not read yet.
func (s *Scanner) Order() binary.ByteOrder { return s.order }

// LineBias returns the difference between the addresses in line tables and the addresses of
// their code.
func (s *Scanner) LineBias() uint64 {
	if s.beyond && !s.direct {
		return elfHeader
	}
	return 0
}

// Scan reads the records from the end of the last call up to size, the file's current size in
// bytes, and returns a copy of the parts that a [Table] needs. If it stops early, after
// reading about budget bytes, more is true. An incomplete record at the end of the file is
// left for the next call. The error wraps [ErrRewritten], [ErrTruncated] or a [*FormatError],
// or is r's.
func (s *Scanner) Scan(r io.ReaderAt, size, budget int64) (kept []byte, more bool, err error) {
	if s.err != nil {
		return nil, false, s.err
	}
	w := &chunks{r: r, size: size, left: budget}
	if err := s.begin(w); err != nil {
		if errors.Is(err, errShort) {
			err = nil
		}
		return nil, false, s.keepError(err)
	}
	for {
		at := s.offset
		kept, err = s.next(w, kept)
		switch {
		case errors.Is(err, errShort):
			return kept, false, nil
		case err != nil:
			return kept, false, s.keepError(err)
		case w.left <= 0 && s.offset > at:
			return kept, s.offset < size, nil
		}
	}
}

// keepError makes a [FormatError] permanent.
func (s *Scanner) keepError(err error) error {
	if format := (*FormatError)(nil); errors.As(err, &format) {
		s.err = err
	}
	return err
}

// begin reads the header, or checks that it is still the same.
func (s *Scanner) begin(w *chunks) error {
	b, err := w.bytes(0, headerSize)
	switch {
	case s.order != nil && errors.Is(err, errShort), w.size < s.offset:
		return ErrTruncated
	case err != nil:
		return err
	case s.order == nil:
		return s.readHeader(b, w.size)
	case !bytes.Equal(b, s.header[:]):
		return ErrRewritten
	}
	return nil
}

func (s *Scanner) readHeader(b []byte, available int64) error {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		if order.Uint32(b) != magic {
			continue
		}
		h := record{order, b}
		size, flags := h.u32(8), h.u64(32)
		switch {
		case h.u32(4) > version:
			return formatErrorf("version %d of the format is not known", h.u32(4))
		case flags&^flagArchTimestamp != 0:
			return formatErrorf("flags %#x of the format are not known", flags)
		case flags&flagArchTimestamp != 0:
			return formatErrorf("its timestamps are from the processor's counter, not from CLOCK_MONOTONIC")
		case size < headerSize || size > maxHeader:
			return formatErrorf("header of %d bytes", size)
		case int64(size) > available:
			return errShort
		}
		s.order, s.pid, s.offset = order, h.u32(20), int64(size)
		copy(s.header[:], b)
		return nil
	}
	return formatErrorf("not a jitdump file")
}

// next reads the next record, and appends the parts that a [Table] needs to kept.
func (s *Scanner) next(w *chunks, kept []byte) ([]byte, error) {
	b, err := w.bytes(s.offset, prefixSize)
	if err != nil {
		return kept, err
	}
	r := record{s.order, b}
	id, size := r.id(), int64(r.size())
	if size < prefixSize {
		return kept, formatErrorf("record of %d bytes at offset %d", size, s.offset)
	}
	if size > w.size-s.offset {
		return kept, errShort
	}
	switch id {
	case recordLoad:
		kept, err = s.load(w, size, kept)
	case recordMove:
		kept, err = s.move(w, size, kept)
	case recordDebugInfo:
		err = s.keepDebug(w, size)
	}
	if err != nil {
		return kept, err
	}
	s.offset += size
	return kept, nil
}

// load keeps a function and the line table before it.
func (s *Scanner) load(w *chunks, size int64, kept []byte) ([]byte, error) {
	debug := s.debug
	if size <= loadSize {
		s.drop()
		return kept, nil
	}
	b, err := w.bytes(s.offset, loadSize)
	if err != nil {
		return kept, err
	}
	r := record{s.order, b}
	start, length, _ := r.code()
	if length > uint64(size-loadSize) || start+length < start {
		s.drop()
		return kept, nil
	}
	pid, room := r.pid(), size-loadSize-int64(length)
	b, err = w.bytes(s.offset, loadSize+min(room, maxName+1))
	if err != nil {
		return kept, err
	}
	name := b[loadSize:]
	end := bytes.IndexByte(name, 0)
	if end < 0 && room <= maxName+1 {
		s.drop()
		return kept, nil
	}
	if end < 0 {
		end = maxName
	}
	s.debug = s.debug[:0]
	if pid != s.pid {
		return kept, nil // from a forked child that writes to the same file
	}
	if len(debug) > 0 && (record{s.order, debug}).debugStart() == start {
		if s.checkLines(record{s.order, debug}, start, length) {
			kept = append(kept, debug...)
		} else {
			s.MalformedLines++
		}
	}
	return s.appendSized(kept, b[:loadSize+end]), nil
}

// checkLines reports whether a line table fits its function: its names are valid, and some of its
// lines are the function's. Some versions of V8 write names of files from memory that they have
// freed; such a table is not trusted at all. It also updates the evidence for [Scanner.LineBias].
func (s *Scanner) checkLines(r record, start, length uint64) bool {
	direct, beyond, valid := false, false, true
	entries, stray := uint64(0), uint64(0)
	formed := r.entries(func(e entry) {
		at := e.address - start
		entries++
		switch {
		case isBefore(at), at < elfHeader:
			direct = true
		case at > length+elfHeader:
			stray++
		case at >= length:
			beyond = true
		}
		valid = valid && utf8.Valid(e.file)
	})
	if !formed || !valid || stray > 0 && stray == entries {
		return false
	}
	s.direct, s.beyond = s.direct || direct, s.beyond || beyond
	s.StrayLines += stray
	return true
}

// move keeps a record of moved code.
func (s *Scanner) move(w *chunks, size int64, kept []byte) ([]byte, error) {
	if size < moveSize {
		s.Malformed++
		return kept, nil
	}
	b, err := w.bytes(s.offset, moveSize)
	if err != nil {
		return kept, err
	}
	r := record{s.order, b}
	if start, length, _ := r.code(); start+length < start {
		s.Malformed++
		return kept, nil
	}
	if r.pid() != s.pid {
		return kept, nil
	}
	return s.appendSized(kept, b), nil
}

// keepDebug keeps a line table until its function follows.
func (s *Scanner) keepDebug(w *chunks, size int64) error {
	s.debug = s.debug[:0]
	if size < debugSize || size > maxDebug {
		s.MalformedLines++
		return nil
	}
	b, err := w.bytes(s.offset, size)
	if err != nil {
		return err
	}
	s.debug = append(s.debug, b...)
	return nil
}

// drop counts a malformed record of a function.
func (s *Scanner) drop() {
	s.Malformed++
	s.debug = s.debug[:0]
}

// appendSized appends record b, with its size as is.
func (s *Scanner) appendSized(kept, b []byte) []byte {
	at := len(kept)
	kept = append(kept, b...)
	s.order.PutUint32(kept[at+4:], uint32(len(b)))
	return kept
}

// errShort means that the file does not have the bytes yet.
var errShort = errors.New("no more data")

// chunks reads a file in chunks.
type chunks struct {
	r    io.ReaderAt
	size int64
	left int64 // bytes that may still be read
	at   int64 // offset of buf
	buf  []byte
}

// chunk is the size of a read, in bytes.
const chunk = 1 << 16

// bytes returns n bytes at offset off, which are valid until the next call.
func (w *chunks) bytes(off, n int64) ([]byte, error) {
	if n > w.size-off {
		return nil, errShort
	}
	if off < w.at || off+n > w.at+int64(len(w.buf)) {
		want := min(max(n, chunk), w.size-off)
		if int64(cap(w.buf)) < want {
			w.buf = make([]byte, want)
		}
		w.at, w.buf = off, w.buf[:want]
		w.left -= want
		got, err := w.r.ReadAt(w.buf, off)
		w.buf = w.buf[:got]
		if int64(got) < n {
			if err == nil || errors.Is(err, io.EOF) {
				err = errShort
			}
			return nil, err
		}
	}
	return w.buf[off-w.at:][:n], nil
}
