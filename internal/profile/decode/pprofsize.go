package decode

import (
	"context"
	"fmt"
	"io"

	"github.com/google/pprof/profile"

	"fulgur/internal/files/ctxfile"
	model "fulgur/internal/profile"
)

// ParsePprof reads a profile of github.com/google/pprof, compressed or not, until ctx is
// done. Its memory is bounded whatever the profile contains.
func ParsePprof(ctx context.Context, r io.Reader) (*profile.Profile, error) {
	in, err := unpacked(ctx, r)
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
	return ctxfile.Run(ctx, func() (*profile.Profile, error) {
		n, err := pprofSize(data)
		if err != nil {
			return nil, err
		}
		if n > model.MaxTables {
			return nil, fmt.Errorf("needs %d MiB in memory, more than %d", n>>20, model.MaxTables>>20)
		}
		p, err := profile.ParseUncompressed(data)
		switch {
		case err == nil:
			err = p.CheckValid()
			return p, err
		case len(data) > maxLegacy:
			return nil, err
		}
		p, err = profile.ParseData(data) // it decompresses if necessary, but this is not compressed
		if err == nil {
			nameLegacy(p, data)
		}
		return p, err
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

// Memory that pprof's parser allocates for each element, in bytes, including its indexes and
// what growing slices leave behind: a slice that grows by a quarter allocates five times
// its size. An element of any other kind takes no more than a mapping.
const (
	pprofSampleSize   = 256
	pprofPackedSize   = 32 // a number in its sample's first list
	pprofNumberSize   = 80
	pprofLabelSize    = 1536 // the first label of a sample makes three maps
	pprofMoreSize     = 768  // another label
	pprofLocationSize = 256
	pprofLineSize     = 80
	pprofFunctionSize = 256
	pprofOtherSize    = 384
	pprofStringSize   = 128
	pprofCommentSize  = 160
)

// pprofSize returns the maximum memory that pprof's parser takes for data. It reads
// malformed data as far as the parser does. A location with too many lines is an error:
// they share memory that doubles while it grows.
func pprofSize(data []byte) (size int64, err error) {
	scanFields(data, func(f protoField) bool {
		switch f.number {
		case profileSample:
			size += pprofSampleSize + pprofSampleParts(f.data)
		case profileLocation:
			size += pprofLocationSize
			lines := 0
			eachField(f.data, func(f protoField) {
				if f.number == locationLine {
					lines++
				}
			})
			if size += pprofLineSize * int64(lines); lines > model.MaxDepth {
				err = fmt.Errorf("a location has more than %d lines", model.MaxDepth)
			}
		case profileFunction:
			size += pprofFunctionSize
		case profileString:
			size += pprofStringSize + int64(len(f.data)) + int64(len(f.data))/4
		case profileComment:
			size += pprofCommentSize * f.numbers()
		default:
			size += pprofOtherSize
		}
		return err == nil
	})
	return size, err
}

// pprofSampleParts returns the memory for the locations, values and labels of a sample.
func pprofSampleParts(data []byte) (size int64) {
	var seen [sampleLabel + 1]bool
	eachField(data, func(f protoField) {
		switch f.number {
		case sampleLocation, sampleValue:
			each := int64(pprofNumberSize)
			if f.packed && !seen[f.number] {
				each = pprofPackedSize
			}
			size += each * f.numbers()
		case sampleLabel:
			if size += pprofMoreSize; !seen[f.number] {
				size += pprofLabelSize - pprofMoreSize
			}
		default:
			return
		}
		seen[f.number] = true
	})
	return size
}
