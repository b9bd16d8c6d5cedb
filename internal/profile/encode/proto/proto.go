// Package proto encodes protocol buffer messages field by field, so that a large message
// needs no tree of objects.
package proto

import "encoding/binary"

// Message is an encoded message, without its length. Its methods append fields. A field
// that is 0 may be omitted, since 0 is the default.
type Message []byte

// The wire types used; see https://protobuf.dev/programming-guides/encoding/.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
)

// key appends the key of a field.
func (m *Message) key(field, wire int) {
	*m = binary.AppendUvarint(*m, uint64(field<<3|wire))
}

// Uint appends a number unless it is 0.
func (m *Message) Uint(field int, v uint64) {
	if v != 0 {
		m.key(field, wireVarint)
		*m = binary.AppendUvarint(*m, v)
	}
}

// Int appends a number unless it is 0. A negative one takes ten bytes.
func (m *Message) Int(field int, v int64) { m.Uint(field, uint64(v)) }

// Fixed64 appends a number of type fixed64 unless it is 0.
func (m *Message) Fixed64(field int, v uint64) {
	if v != 0 {
		m.key(field, wireFixed64)
		*m = binary.LittleEndian.AppendUint64(*m, v)
	}
}

// Bool appends v unless it is false.
func (m *Message) Bool(field int, v bool) {
	if v {
		m.Uint(field, 1)
	}
}

// Member appends a number even if it is 0, for a field of a oneof.
func (m *Message) Member(field int, v int64) {
	m.key(field, wireVarint)
	*m = binary.AppendUvarint(*m, uint64(v))
}

// Announce appends the prefix of size bytes of a string or message.
func (m *Message) Announce(field, size int) {
	m.key(field, wireBytes)
	*m = binary.AppendUvarint(*m, uint64(size))
}

// Message appends a message, even if it is empty.
func (m *Message) Message(field int, v Message) {
	m.Announce(field, len(v))
	*m = append(*m, v...)
}

// String appends a string, which must be valid UTF-8, even if it is empty.
func (m *Message) String(field int, s string) {
	m.Announce(field, len(s))
	*m = append(*m, s...)
}

// Packed appends a list of numbers to m, including zeros.
func Packed[T ~int32 | ~uint32 | ~int64](m *Message, field int, list []T) {
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
	m.Announce(field, size)
	for _, v := range list {
		*m = binary.AppendUvarint(*m, uint64(v))
	}
}
