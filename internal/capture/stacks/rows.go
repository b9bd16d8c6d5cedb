package stacks

import (
	"unsafe"

	"github.com/cilium/ebpf"

	"fulgur/internal/linux/ringbuf"
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

func (r *rowsOf[K, V]) parse(record []byte) (Key, Values, error) {
	type event struct {
		Type, _ uint32
		Key     K
		Value   V
	}
	e, err := ringbuf.As[event](record, unsafe.Sizeof(event{}))
	if err != nil {
		return Key{}, Values{}, err
	}
	k, v := r.convert(e.Key, e.Value)
	return k, v, nil
}
