// Package pprof writes profiles in the format of github.com/google/pprof:
// gzipped protocol buffers, described there in proto/profile.proto.
package pprof

import (
	"compress/gzip"
	"fmt"
	"io"

	"fulgur/internal/profile"
)

// Options say what the profile itself does not.
type Options struct {
	// System says that the whole system was profiled: no program stands for
	// it.
	System bool
}

// Write writes p to w. Equal profiles give equal bytes.
//
// What the format leaves open is filled in so:
//
//   - Inlined frames and the frame that they are inlined into are one
//     location with several lines.
//   - A location's address lies within the instruction, as the format's other
//     writers have it: for callers that is the return address less one.
//   - Addresses in files are those at which the file was linked. Mappings of
//     files therefore start at 0, which pprof takes to mean that addresses
//     need no adjustment; it can disassemble the file and find the names of
//     what is unresolved.
//   - The first mapping, which pprof shows as the profile's file, is the program
//     of the process with the most samples, or on a whole system the mapping
//     whose code was sampled most.
//   - The period is known, and not 0, where it is the same for all samples: for
//     clocks and where a period was asked for.
//   - A frame without a name is a location without lines.
//   - Each sample has the labels "comm", "pid" and, where they are known,
//     "tid" and "cpu"; a stack whose user part was cut has "stack_end" with
//     the reason.
//   - Comments hold the command line, what was measured where, and what was
//     lost.
//   - Text that is not UTF-8, which the format demands, has U+FFFD in the
//     place of what is wrong. Nothing else is changed in names.
func Write(w io.Writer, p *profile.Profile, o Options) error {
	// Names repeat: what more than the least effort would save takes a
	// multiple of the time, for files a twentieth smaller.
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := newEncoder(z, p).write(mainMapping(p, o.System)); err != nil {
		return fmt.Errorf("write pprof profile: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write pprof profile: %w", err)
	}
	return nil
}
