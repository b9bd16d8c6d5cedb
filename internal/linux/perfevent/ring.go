package perfevent

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ring is the buffer to which the kernel writes an event's records. It has a single
// reader: its methods are not safe for concurrent use.
type Ring struct {
	mem     []byte
	page    *unix.PerfEventMmapPage
	data    []byte
	scratch []byte
	layout  Layout
}

// Map maps a ring with pages data pages, a power of two, for the event. [Event.Close]
// unmaps it. The kernel returns EINVAL for an inherited event of a task on all CPUs,
// which cannot have a ring.
func (e *Event) Map(pages int) (*Ring, error) {
	if pages <= 0 || pages&(pages-1) != 0 {
		return nil, fmt.Errorf("perf ring of %d pages: must be a power of two", pages)
	}
	if e.ring != nil {
		return nil, errors.New("perf event has a ring already")
	}
	pageSize := os.Getpagesize()
	mem, err := unix.Mmap(e.fd, 0, (1+pages)*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	switch {
	case errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("map perf ring of %d pages: %w: %w", pages, err, ErrLockedMemory)
	case err != nil:
		return nil, fmt.Errorf("map perf ring of %d pages: %w", pages, err)
	}
	e.ring = &Ring{
		mem:    mem,
		page:   (*unix.PerfEventMmapPage)(unsafe.Pointer(&mem[0])),
		data:   mem[pageSize:],
		layout: e.attr.layout(),
	}
	return e.ring, nil
}

func (r *Ring) unmap() error {
	if err := unix.Munmap(r.mem); err != nil {
		return fmt.Errorf("unmap perf ring: %w", err)
	}
	return nil
}

// Read calls fn for every record in the ring, oldest first, and frees the space. The slices of a
// [Sample] are valid until fn returns. lost is the number of records that the kernel dropped,
// according to the [Lost] records (which fn receives too).
//
// Read skips malformed records; err describes the first one and counts the others. If the length
// of a record is invalid, Read drops the rest of the ring, and err says so, too.
func (r *Ring) Read(fn func(Record)) (lost uint64, err error) {
	// The load pairs with the kernel's barrier before it moves data_head: everything
	// before head has been written. The store returns the space only after the last read
	// from it (both are sequentially consistent in Go).
	head := atomic.LoadUint64(&r.page.Data_head)
	tail := atomic.LoadUint64(&r.page.Data_tail)
	defer func() { atomic.StoreUint64(&r.page.Data_tail, head) }()

	size := uint64(len(r.data))
	if head-tail > size {
		return 0, fmt.Errorf("perf ring: %d bytes in a ring of %d", head-tail, size)
	}
	var first, dropped error
	var malformed int // including the first
	for tail < head {
		// Records are multiples of 8 bytes, so a header never wraps around.
		at := tail % size
		n := uint64(binary.NativeEndian.Uint16(r.data[at+6:]))
		if n < headerSize || n > head-tail || n%8 != 0 {
			dropped = fmt.Errorf("perf ring: dropped %d bytes, starting with a record of invalid length %d", head-tail, n)
			break
		}
		rec, perr := r.layout.ParseRecord(r.at(at, n))
		if perr != nil {
			malformed++
			first = cmp.Or(first, perr)
		} else {
			if l, ok := rec.(Lost); ok {
				lost += l.N
			}
			fn(rec)
		}
		tail += n
	}
	switch {
	case malformed == 2:
		first = fmt.Errorf("%w (and 1 more malformed record)", first)
	case malformed > 2:
		first = fmt.Errorf("%w (and %d more malformed records)", first, malformed-1)
	}
	if first != nil && dropped != nil {
		return lost, fmt.Errorf("%w; %w", dropped, first)
	}
	return lost, cmp.Or(first, dropped)
}

// at returns the n bytes at offset at, copied only if they wrap around the ring's end.
// They are valid until the next call.
func (r *Ring) at(at, n uint64) []byte {
	if at+n <= uint64(len(r.data)) {
		return r.data[at : at+n]
	}
	first := r.data[at:]
	r.scratch = append(append(r.scratch[:0], first...), r.data[:n-uint64(len(first))]...)
	return r.scratch
}
