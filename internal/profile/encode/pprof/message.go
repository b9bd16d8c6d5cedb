package pprof

import "encoding/binary"

// message is an encoded protocol buffer message, without its length. Fields that are 0
// may be omitted, since 0 is the default.
type message []byte

// The wire types used.
const (
	wireVarint = 0
	wireBytes  = 2
)

// key appends the key of a field.
func (m *message) key(field, wire int) {
	*m = binary.AppendUvarint(*m, uint64(field<<3|wire))
}

// uint appends a number unless it is 0.
func (m *message) uint(field int, v uint64) {
	if v != 0 {
		m.key(field, wireVarint)
		*m = binary.AppendUvarint(*m, v)
	}
}

// int appends a number unless it is 0. A negative one takes ten bytes.
func (m *message) int(field int, v int64) { m.uint(field, uint64(v)) }

// bool appends v unless it is false.
func (m *message) bool(field int, v bool) {
	if v {
		m.uint(field, 1)
	}
}

// announce appends the prefix of size bytes of a string or message.
func (m *message) announce(field, size int) {
	m.key(field, wireBytes)
	*m = binary.AppendUvarint(*m, uint64(size))
}

// message appends a message, even if it is empty.
func (m *message) message(field int, v message) {
	m.announce(field, len(v))
	*m = append(*m, v...)
}

// packed appends a list of numbers, including zeros.
func packed[T ~uint32 | ~int64](m *message, field int, list []T) {
	if len(list) == 0 {
		return
	}
	size := 0
	for _, v := range list {
		size++
		for rest := uint64(v) >> 7; rest != 0; rest >>= 7 {
			size++
		}
	}
	m.announce(field, size)
	for _, v := range list {
		*m = binary.AppendUvarint(*m, uint64(v))
	}
}
