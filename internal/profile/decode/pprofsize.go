package decode

import (
	"context"
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	model "fulgur/internal/profile"
)

// ParsePprof reads a profile of github.com/google/pprof, compressed or not, until ctx is
// done. Its memory is bounded whatever the profile contains.
func ParsePprof(ctx context.Context, r io.Reader) (*profile.Profile, error) {
	in, err := unpack(ctx, r)
	if err != nil {
		return nil, err
	}
	return parsePprof(ctx, in)
}

// maxLegacy is the maximum size, in bytes, of a profile in one of pprof's legacy formats.
// Their size in memory is not known in advance; the parser takes about twenty times as
// much.
const maxLegacy = 64 << 20

// parsePprof reads an uncompressed profile.
func parsePprof(ctx context.Context, r io.Reader) (*profile.Profile, error) {
	data, err := readAll(ctx, r)
	if err != nil {
		return nil, err
	}
	if n := pprofSize(data); n > model.MaxTables {
		return nil, fmt.Errorf("needs %d MiB in memory, more than %d", n>>20, model.MaxTables>>20)
	}
	return until(ctx, func() (*profile.Profile, error) {
		p, err := profile.ParseUncompressed(data)
		switch {
		case err == nil:
			err = p.CheckValid()
			return p, err
		case len(data) > maxLegacy:
			return nil, err
		}
		return profile.ParseData(data) // it decompresses if necessary, but this is not compressed
	})
}

// Numbers of repeated fields in pprof's proto/profile.proto.
const (
	profileSample   = 2
	profileLocation = 4
	profileFunction = 5
	profileString   = 6
	profileComment  = 13

	sampleLocation = 1
	sampleValue    = 2
	sampleLabel    = 3

	locationLine = 4
)

// Memory that pprof's parser takes for each element, in bytes, including its indexes and
// growing slices. An element of any other kind takes no more than a mapping.
const (
	pprofSampleSize   = 256
	pprofNumberSize   = 32
	pprofLabelSize    = 1024 // the first label of a sample makes three maps
	pprofLocationSize = 256
	pprofLineSize     = 80
	pprofFunctionSize = 256
	pprofOtherSize    = 384
	pprofStringSize   = 64
)

// pprofSize returns the maximum memory that pprof's parser takes for data. It reads
// malformed data as far as the parser does.
func pprofSize(data []byte) (size int64) {
	eachField(data, func(f protoField) {
		switch f.number {
		case profileSample:
			size += pprofSampleSize
			eachField(f.data, func(f protoField) {
				switch f.number {
				case sampleLocation, sampleValue:
					size += pprofNumberSize * f.numbers()
				case sampleLabel:
					size += pprofLabelSize
				}
			})
		case profileLocation:
			size += pprofLocationSize
			eachField(f.data, func(f protoField) {
				if f.number == locationLine {
					size += pprofLineSize
				}
			})
		case profileFunction:
			size += pprofFunctionSize
		case profileString:
			size += pprofStringSize + int64(len(f.data))
		case profileComment:
			size += pprofNumberSize * f.numbers()
		default:
			size += pprofOtherSize
		}
	})
	return size
}

// protoField is a field of a protocol buffer message.
type protoField struct {
	number uint64
	packed bool   // packed numbers, a string or a message
	data   []byte // its contents
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
	for len(data) > 0 {
		key, n := uvarint(data)
		if n == 0 {
			return
		}
		data = data[n:]
		f := protoField{number: key >> 3}
		switch key & 7 {
		case 0:
			_, n = uvarint(data)
		case 1:
			n = 8
		case 5:
			n = 4
		case 2:
			length, size := uvarint(data)
			if size == 0 || length > uint64(len(data)-size) {
				return
			}
			data = data[size:]
			n = int(length)
			f.packed, f.data = true, data[:n]
			if n == 0 {
				yield(f)
				continue
			}
		default:
			return
		}
		if n == 0 || n > len(data) {
			return
		}
		yield(f)
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
