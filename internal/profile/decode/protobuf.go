package decode

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// protoField is a field of a protocol buffer message.
type protoField struct {
	number uint64
	packed bool   // packed numbers, a string or a message
	data   []byte // its contents
	raw    []byte // the whole field
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

// eachField calls yield with the fields of a message, up to the first malformed one.
func eachField(data []byte, yield func(protoField)) {
	scanFields(data, func(f protoField) bool {
		yield(f)
		return true
	})
}

// scanFields is like eachField, but ends when yield returns false. It reports whether a field was
// malformed. It skips groups, which proto2 has, but none of the messages that are read here.
func scanFields(data []byte, yield func(protoField) bool) (malformed bool) {
	for len(data) > 0 {
		key, size := uvarint(data)
		if size == 0 {
			return true
		}
		f, content := protoField{number: key >> 3}, data[size:]
		var n int // length of the content
		switch key & 7 {
		case 0:
			if _, n = uvarint(content); n == 0 {
				return true
			}
		case 1:
			n = 8
		case 5:
			n = 4
		case 2:
			length, prefix := uvarint(content)
			if prefix == 0 || length > uint64(len(content)-prefix) {
				return true
			}
			n = prefix + int(length)
			f.packed, f.data = true, content[prefix:n]
		case 3:
			if n = protowire.ConsumeFieldValue(protowire.Number(min(f.number, math.MaxInt32)), protowire.StartGroupType, content); n <= 0 {
				return true
			}
			data = content[n:]
			continue
		default:
			return true
		}
		if n > len(content) {
			return true
		}
		f.raw, f.rest = data[:size+n], len(content)-n
		if !yield(f) {
			return false
		}
		data = content[n:]
	}
	return false
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
