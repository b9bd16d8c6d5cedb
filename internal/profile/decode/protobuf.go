package decode

import (
	"encoding/binary"
	"iter"
)

// protoField is a field of a protocol buffer message.
type protoField struct {
	number uint64
	packed bool   // packed numbers, a string or a message
	data   []byte // its contents
	value  uint64 // of a single number
	rest   int    // length of the data after it
}

// numbers returns the number of numbers in a field.
func (f protoField) numbers() (n int64) {
	if !f.packed {
		return 1
	}
	for _, b := range f.data {
		if b < 0x80 {
			n++
		}
	}
	return n + 1
}

// list returns the numbers in a field of repeated numbers.
func (f protoField) list() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		if !f.packed {
			yield(f.value)
			return
		}
		for data := f.data; len(data) > 0; {
			v, n := uvarint(data)
			if n == 0 || !yield(v) {
				return
			}
			data = data[n:]
		}
	}
}

// eachField calls yield with the fields of a message, up to the first malformed one.
func eachField(data []byte, yield func(protoField)) {
	scanFields(data, func(f protoField) bool {
		yield(f)
		return true
	})
}

// scanFields is like eachField, but ends when yield returns false.
func scanFields(data []byte, yield func(protoField) bool) {
	for len(data) > 0 {
		key, n := uvarint(data)
		if n == 0 {
			return
		}
		data = data[n:]
		f := protoField{number: key >> 3}
		switch key & 7 {
		case 0:
			f.value, n = uvarint(data)
		case 1:
			if n = 8; n <= len(data) {
				f.value = binary.LittleEndian.Uint64(data)
			}
		case 5:
			n = 4
		case 2:
			length, size := uvarint(data)
			if size == 0 || length > uint64(len(data)-size) {
				return
			}
			data = data[size:]
			n = int(length)
			f.packed, f.data, f.rest = true, data[:n], len(data)-n
			if n == 0 {
				if !yield(f) {
					return
				}
				continue
			}
		default:
			return
		}
		if n == 0 || n > len(data) {
			return
		}
		f.rest = len(data) - n
		if !yield(f) {
			return
		}
		data = data[n:]
	}
}

// uvarint reads a varint like pprof's parser, which accepts ten bytes regardless of the
// last one. It returns the value and its length, 0 if truncated.
func uvarint(data []byte) (v uint64, n int) {
	for i, b := range data[:min(len(data), 10)] {
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
