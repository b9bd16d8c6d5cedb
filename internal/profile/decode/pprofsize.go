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
