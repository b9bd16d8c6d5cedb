package perfdata

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
)

// Types of records: those of the kernel that x/sys/unix does not have, and those that perf adds (see
// tools/lib/perf/include/perf/event.h). Up to perf 7.2, this is what the package does with each:
//
//	MMAP 1, MMAP2 10              read: mappings
//	LOST 2, LOST_SAMPLES 13       read: counted
//	COMM 3                        read: names, execs
//	EXIT 4                        skipped: the ID of a process is only used again after a fork
//	THROTTLE 5                    read: counted
//	UNTHROTTLE 6, READ 8          skipped
//	FORK 7                        read
//	SAMPLE 9                      read
//	AUX 11, ITRACE_START 12, AUX_OUTPUT_HW_ID 21
//	                              skipped: of a trace
//	SWITCH 14, SWITCH_CPU_WIDE 15, NAMESPACES 16, CGROUP 19
//	                              skipped
//	KSYMBOL 17, BPF_EVENT 18, TEXT_POKE 20
//	                              skipped: the kernel's names come from its symbols
//	CALLCHAIN_DEFERRED 22         read: user call chains of samples before
//	HEADER_ATTR 64, EVENT_UPDATE 78, HEADER_FEATURE 80
//	                              read: events, their names, the machine
//	HEADER_EVENT_TYPE 65          skipped: obsolete
//	HEADER_TRACING_DATA 66        skipped with the data after it
//	HEADER_BUILD_ID 67            read
//	FINISHED_ROUND 68             read: sorts mappings
//	ID_INDEX 69                   skipped: the IDs are those of HEADER_ATTR
//	AUXTRACE 71                   skipped with the data after it, which is counted
//	AUXTRACE_INFO 70, AUXTRACE_ERROR 72, THREAD_MAP 73, CPU_MAP 74, TIME_CONV 79,
//	FINISHED_INIT 82, BPF_METADATA 84
//	                              skipped
//	STAT_CONFIG 75, STAT 76, STAT_ROUND 77, SCHEDSTAT_CPU 85, SCHEDSTAT_DOMAIN 86
//	                              skipped: of perf stat and perf sched stats
//	COMPRESSED 81, COMPRESSED2 83 read: they contain other records
//
// Others are skipped and counted.
const (
	recordCallchainDeferred = 22
	recordHeaderAttr        = 64
	recordHeaderTracingData = 66
	recordHeaderBuildID     = 67
	recordFinishedRound     = 68
	recordAuxtrace          = 71
	recordEventUpdate       = 78
	recordHeaderFeature     = 80
	recordCompressed        = 81
	recordCompressed2       = 83
	recordLast              = 86
)

// isKnown reports whether perf 7.2 knows a type of records.
func isKnown(typ uint32) bool {
	return typ >= 1 && typ <= recordCallchainDeferred || typ >= recordHeaderAttr && typ <= recordLast
}

// update sets the name of an event from a record in the pipe format: what is updated, the event's ID,
// and its new value.
func (as *attrs) update(rec record) {
	const updateName = 2
	f := perfevent.Fields{B: rec.body}
	what, id := f.U64(), f.U64()
	if a, ok := as.of(id); ok && what == updateName {
		a.setName(f.Text())
	}
}

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
		f := perfevent.Fields{B: rec.body}
		payload = f.Take(f.U64())
		if f.Short {
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
		// Skip the record and the bytes after it.
		rs.held, rec.body = 0, bytes.Clone(rec.body)
		if _, err := io.CopyN(io.Discard, rs.r, int64(size)+extra); err != nil {
			return record{}, rs.readError(err)
		}
		rs.pos += extra
	}
	return rec, nil
}

// trailing returns the number of bytes after a record that do not belong to it.
func (rs *records) trailing(rec record) (int64, error) {
	f := perfevent.Fields{B: rec.body}
	var n uint64
	switch rec.typ {
	case recordAuxtrace:
		n = f.U64()
	case recordHeaderTracingData:
		n = (uint64(f.U32()) + 7) &^ 7
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
