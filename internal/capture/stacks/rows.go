package stacks

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
)

// drainBatch is how many entries one system call reads; its buffers stay.
const drainBatch = 1024

// rows are entries of a count map, as many as one system call reads, whatever
// the types that the map has.
type rows interface {
	// take moves entries out of m and returns how many there were.
	take(m *ebpf.Map, cursor *ebpf.MapBatchCursor) (int, error)
	// grow makes room for more entries, and reports whether there was less
	// than for limit.
	grow(limit int) bool
	// at returns entry i of those that take took.
	at(i int) (Key, Values)
	// parse reads an event record, bpf/count.h.
	parse(record []byte) (Key, Values, error)
}

type rowsOf[K, V any] struct {
	keys    []K
	values  []V
	convert func(K, V) (Key, Values)
}

func (r *rowsOf[K, V]) take(m *ebpf.Map, cursor *ebpf.MapBatchCursor) (int, error) {
	return m.BatchLookupAndDelete(cursor, r.keys, r.values, nil)
}

func (r *rowsOf[K, V]) grow(limit int) bool {
	n := len(r.keys)
	if n >= limit {
		return false
	}
	r.keys, r.values = make([]K, 2*n), make([]V, 2*n)
	return true
}

func (r *rowsOf[K, V]) at(i int) (Key, Values) { return r.convert(r.keys[i], r.values[i]) }

// eventHeader is the size of what is before the key in an event record.
const eventHeader = 8

func (r *rowsOf[K, V]) parse(record []byte) (Key, Values, error) {
	var event struct {
		Key   K
		Value V
	}
	if len(record) < eventHeader {
		return Key{}, Values{}, fmt.Errorf("%w: event of %d bytes", ErrRecord, len(record))
	}
	if _, err := binary.Decode(record[eventHeader:], binary.NativeEndian, &event); err != nil {
		return Key{}, Values{}, fmt.Errorf("%w: event of %d bytes: %w", ErrRecord, len(record), err)
	}
	k, v := r.convert(event.Key, event.Value)
	return k, v, nil
}
