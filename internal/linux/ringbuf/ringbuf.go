// Package ringbuf reads a BPF ring buffer up to a given position. This is needed for
// ordering against other channels: note the position, drain the sideband, then read the
// stacks up to the position.
//
// The layout follows kernel/bpf/ringbuf.c: one page with the consumer position, one page
// with the producer position, then the data, mapped twice in a row so that no record is
// split.
package ringbuf

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const (
	headerSize = 8
	busyBit    = 1 << 31
	discardBit = 1 << 30
)

// ErrCorrupt is returned when a record's header contradicts the positions. It cannot
// happen while only the kernel writes to the ring.
var ErrCorrupt = errors.New("ring buffer is corrupt")

// Reader reads one ring buffer map. It is the ring's only consumer, and is not safe for
// concurrent use.
type Reader struct {
	fd       int
	consumer []byte // one writable page
	producer []byte // one read-only page and the data twice
	data     []byte
	mask     uint64
}

// Ring is where the records of programs are read: a [Reader], or what takes its place where no program runs.
type Ring interface {
	// FD returns a descriptor that becomes readable when records should be read, or -1 if there is none.
	FD() int
	// Position returns the current end of the records.
	Position() uint64
	// ReadTo calls fn for the records before a position. A record is valid until fn returns.
	ReadTo(to uint64, fn func(record []byte) error) error
}

// NewReader maps the ring buffer m into memory.
func NewReader(m *ebpf.Map) (*Reader, error) {
	page, size := os.Getpagesize(), int(m.MaxEntries())
	consumer, err := unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the ring buffer's consumer page: %w", err)
	}
	producer, err := unix.Mmap(m.FD(), int64(page), page+2*size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Munmap(consumer)
		return nil, fmt.Errorf("map the ring buffer's data (%d bytes): %w", size, err)
	}
	return &Reader{
		fd:       m.FD(),
		consumer: consumer,
		producer: producer,
		data:     producer[page:],
		mask:     uint64(size) - 1,
	}, nil
}

// Close unmaps the ring. Records handed out must not be used afterwards. Further calls do
// nothing.
func (r *Reader) Close() error {
	if r.consumer == nil {
		return nil
	}
	err := errors.Join(unix.Munmap(r.consumer), unix.Munmap(r.producer))
	r.consumer, r.producer, r.data = nil, nil, nil
	return err
}

// FD returns the map's descriptor, which polls as readable when a producer requested a
// wake-up.
func (r *Reader) FD() int { return r.fd }

// Position returns the end of the reserved records, in bytes since the ring was created.
func (r *Reader) Position() uint64 { return atomic.LoadUint64(word(r.producer)) }

// Pending returns the number of bytes that are reserved but not read.
func (r *Reader) Pending() uint64 { return r.Position() - atomic.LoadUint64(word(r.consumer)) }

// Size returns the capacity of the ring in bytes.
func (r *Reader) Size() uint64 { return r.mask + 1 }

// ReadTo calls fn for every complete record before position to, in order of reservation.
// A record is valid only during the call. ReadTo stops at the first record that is still
// being written, and at fn's first error.
func (r *Reader) ReadTo(to uint64, fn func(record []byte) error) error {
	for at := atomic.LoadUint64(word(r.consumer)); at < to; {
		offset := at & r.mask
		length := atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.data[offset])))
		if length&busyBit != 0 {
			return nil
		}
		size := uint64(length &^ discardBit)
		if size > r.mask {
			return fmt.Errorf("%w: record of %d bytes at position %d", ErrCorrupt, size, at)
		}
		var err error
		if length&discardBit == 0 {
			start := offset + headerSize
			err = fn(r.data[start : start+size])
		}
		at += (headerSize + size + 7) &^ 7
		atomic.StoreUint64(word(r.consumer), at)
		if err != nil {
			return err
		}
	}
	return nil
}

// ErrRecord matches errors for records that do not have the form that the programs
// write.
var ErrRecord = errors.New("malformed record in the ring buffer")

// As returns a record as a T. Records with fewer than size bytes are an [ErrRecord]. Fields
// beyond the end of the record are zero. Records are aligned as in the ring.
func As[T any](record []byte, size uintptr) (*T, error) {
	if uintptr(len(record)) >= max(size, unsafe.Sizeof(*new(T))) {
		return (*T)(unsafe.Pointer(&record[0])), nil
	}
	whole := new(T)
	return whole, Copy(whole, record, size)
}

// Copy copies a record to a T, like [As].
func Copy[T any](to *T, record []byte, size uintptr) error {
	if uintptr(len(record)) < size {
		return fmt.Errorf("%w: %d bytes, want at least %d", ErrRecord, len(record), size)
	}
	b := unsafe.Slice((*byte)(unsafe.Pointer(to)), unsafe.Sizeof(*to))
	clear(b[copy(b, record):])
	return nil
}

func word(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(&b[0])) }
