package stacks

import (
	"unsafe"

	"github.com/cilium/ebpf"

	"fulgur/internal/linux/ringbuf"
)

// drainBatch is the number of entries per system call. Buffers are reused.
const drainBatch = 1024

// rows holds the entries of a count map that one system call reads, for any types of
// keys and values.
type rows interface {
	// take moves entries out of m and returns their number.
	take(m *ebpf.Map, cursor *ebpf.MapBatchCursor) (int, error)
	// grow makes room for more entries. It reports whether there was room for
	// fewer than limit.
	grow(limit int) bool
	// at returns entry i of the last take.
	at(i int) (Key, Values)
	// parse parses an event record; see bpf/count.h.
	parse(record []byte) (Key, Values, error)
}

type rowsOf[K, V any] struct {
	keys    []K
	values  []V
	source  uint8 // as in Key
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

func (r *rowsOf[K, V]) at(i int) (Key, Values) { return r.decode(r.keys[i], r.values[i]) }

func (r *rowsOf[K, V]) decode(key K, value V) (Key, Values) {
	k, v := r.convert(key, value)
	k.Source = r.source
	return k, v
}

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
	k, v := r.decode(e.Key, e.Value)
	return k, v, nil
}
