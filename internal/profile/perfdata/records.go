package perfdata

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"fulgur/internal/profile"
)

// Record types that perf adds to the kernel's PERF_RECORD_ (see
// perf.data-file-format.txt).
const (
	recordHeaderAttr        = 64
	recordHeaderTracingData = 66
	recordHeaderBuildID     = 67
	recordFinishedRound     = 68
	recordAuxtrace          = 71
	recordCompressed        = 81
	recordCompressed2       = 83
)

// headerSize is the size of struct perf_event_header.
const headerSize = 8

// record is a record of perf.data. Its body is valid until the next one is read.
type record struct {
	typ    uint32
	misc   uint16
	body   []byte // without its header
	offset int64  // in the file; for a compressed record, of its container
}

// records reads the records of the data section, expanding compressed records in place.
type records struct {
	name string
	r    *bufio.Reader
	pos  int64 // offset in the file of r's next byte
	held int   // bytes of the last returned record that are still in r

	inflate *inflater // nil before the first compressed record
	active  bool      // inflate may have more output
	total   int64     // bytes of its output so far
	from    int64     // offset of its current compressed record
	buf     []byte    // decompressed data
	plain   []byte    // the unread part of buf
}

// newRecords reads from r, which begins at offset start of the named file. The caller
// must call close.
func newRecords(r io.Reader, name string, start int64) *records {
	return &records{name: name, r: bufio.NewReaderSize(r, 1<<18), pos: start}
}

func (rs *records) close() {
	if rs.inflate != nil {
		rs.inflate.close()
	}
}

// next returns the next uncompressed record, or io.EOF.
func (rs *records) next() (record, error) {
	for {
		rec, ok, err := rs.split()
		if ok || err != nil {
			return rec, err
		}
		if rs.active {
			chunk, err := rs.inflate.read()
			if err != nil {
				return record{}, rs.errorf(rs.from, "compressed record: %v", err)
			}
			rs.active = chunk != nil
			if rs.total += int64(len(chunk)); rs.total > profile.MaxUnpacked {
				return record{}, fmt.Errorf("%s: compressed records: %w", rs.name, profile.ErrUnpacked)
			}
			rs.buf = append(append(rs.buf[:0], rs.plain...), chunk...)
			rs.plain = rs.buf
			continue
		}
		rec, err = rs.raw()
		if err != nil {
			if errors.Is(err, io.EOF) && len(rs.plain) > 0 {
				err = rs.errorf(rs.from, "record cut short in compressed data")
			}
			return record{}, err
		}
		payload, ok, err := rs.compressed(rec)
		if err != nil {
			return record{}, err
		}
		if !ok {
			return rec, nil
		}
		if rs.inflate == nil {
			if rs.inflate, err = newInflater(); err != nil {
				return record{}, fmt.Errorf("%s: %w", rs.name, err)
			}
		}
		rs.inflate.feed(payload)
		rs.active, rs.from = true, rec.offset
	}
}

// compressed returns the compressed bytes of rec, if it is a compressed record.
func (rs *records) compressed(rec record) (payload []byte, ok bool, err error) {
	switch rec.typ {
	case recordCompressed:
		return rec.body, true, nil
	case recordCompressed2: // padded to 8 bytes, so it has its length
		f := fields{b: rec.body}
		payload = f.take(f.u64())
		if f.short {
			return nil, false, rs.errorf(rec.offset, "compressed record cut short")
		}
		return payload, true, nil
	}
	return nil, false, nil
}

// split splits the next record off the decompressed data.
func (rs *records) split() (rec record, ok bool, err error) {
	if len(rs.plain) < headerSize {
		return record{}, false, nil
	}
	rec, size, err := rs.header(rs.plain, rs.from)
	if err != nil || len(rs.plain) < size {
		return record{}, false, err
	}
	rec.body = rs.plain[headerSize:size]
	rs.plain = rs.plain[size:]
	return rec, true, nil
}

// raw returns the next record as stored in the file.
func (rs *records) raw() (record, error) {
	if _, err := rs.r.Discard(rs.held); err != nil {
		return record{}, rs.readError(err)
	}
	rs.held = 0
	b, err := rs.r.Peek(headerSize)
	if err != nil {
		if len(b) == 0 && errors.Is(err, io.EOF) {
			return record{}, io.EOF
		}
		return record{}, rs.readError(err)
	}
	rec, size, err := rs.header(b, rs.pos)
	if err != nil {
		return record{}, err
	}
	if b, err = rs.r.Peek(size); err != nil {
		return record{}, rs.readError(err)
	}
	rec.body = b[headerSize:]
	extra, err := rs.trailing(rec)
	if err != nil {
		return record{}, err
	}
	rs.pos += int64(size)
	rs.held = size
	if extra > 0 {
		// Skip the body and the bytes after the record.
		rs.held, rec.body = 0, nil
		if _, err := io.CopyN(io.Discard, rs.r, int64(size)+extra); err != nil {
			return record{}, rs.readError(err)
		}
		rs.pos += extra
	}
	return rec, nil
}

// trailing returns the number of bytes after a record that do not belong to it.
func (rs *records) trailing(rec record) (int64, error) {
	f := fields{b: rec.body}
	var n uint64
	switch rec.typ {
	case recordAuxtrace:
		n = f.u64()
	case recordHeaderTracingData:
		n = (uint64(f.u32()) + 7) &^ 7
	}
	if n > 1<<62 {
		return 0, rs.errorf(rec.offset, "record followed by %d bytes", n)
	}
	return int64(n), nil
}

// header parses a record's header from b, which holds at least one.
func (rs *records) header(b []byte, offset int64) (rec record, size int, err error) {
	rec = record{
		typ:    binary.NativeEndian.Uint32(b),
		misc:   binary.NativeEndian.Uint16(b[4:]),
		offset: offset,
	}
	size = int(binary.NativeEndian.Uint16(b[6:]))
	if size < headerSize {
		return rec, 0, rs.errorf(offset, "record of type %d says it is %d bytes long", rec.typ, size)
	}
	return rec, size, nil
}

func (rs *records) errorf(offset int64, format string, args ...any) error {
	return &FormatError{File: rs.name, Offset: offset, Problem: fmt.Sprintf(format, args...)}
}

func (rs *records) readError(err error) error {
	if errors.Is(err, io.EOF) {
		return rs.errorf(rs.pos, "record cut short by the end of the data")
	}
	return fmt.Errorf("%s: reading at offset %#x: %w", rs.name, rs.pos, err)
}
