package decode

import (
	"context"
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	model "fulgur/internal/profile"
)

// ParsePprof reads a profile of github.com/google/pprof, compressed or not, until
// ctx ends, in memory that does not depend on what the profile says.
func ParsePprof(ctx context.Context, r io.Reader) (*profile.Profile, error) {
	in, err := unpack(ctx, r)
	if err != nil {
		return nil, err
	}
	return parsePprof(ctx, in)
}

// maxLegacy is the length, in bytes, of a profile in one of pprof's older
// formats, whose size in memory is not known before. The parser takes some twenty
// times as much.
const maxLegacy = 64 << 20

// parsePprof reads a profile that is not compressed.
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
		return profile.ParseData(data) // which unpacks what is compressed, but this is not
	})
}

// Numbers of fields in pprof's proto/profile.proto whose messages or values
// repeat.
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

// What pprof's parser takes for each element, in bytes, with the indexes that it
// makes and the slices that grow. An element of any other kind takes no more than
// a mapping.
const (
	pprofSampleSize   = 256
	pprofNumberSize   = 32
	pprofLabelSize    = 1024 // a sample's first one makes three maps
	pprofLocationSize = 256
	pprofLineSize     = 80
	pprofFunctionSize = 256
	pprofOtherSize    = 384
	pprofStringSize   = 64
)

// pprofSize returns how much memory pprof's parser takes for data, at most. It
// sees as much of malformed data as the parser does.
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

// protoField is a field of a message of protocol buffers.
type protoField struct {
	number uint64
	packed bool   // several numbers, a text or a message
	data   []byte // of it
}

// numbers returns how many numbers a field has.
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

// eachField calls yield with the fields of a message, up to the first that is
// malformed.
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

// uvarint reads a number as pprof's parser does, which accepts ten bytes whatever
// the last one is. It returns its length, 0 if it is cut short.
func uvarint(data []byte) (v uint64, n int) {
	for i, b := range data[:min(len(data), 10)] {
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
