// Package pprof writes profiles in the format of github.com/google/pprof:
// gzipped protocol buffers, described there in proto/profile.proto.
package pprof

import (
	"compress/gzip"
	"fmt"
	"io"

	"fulgur/internal/profile"
)

// Options holds data that the profile itself does not contain.
type Options struct {
	// System is set if the whole system was profiled, so no single program represents the
	// profile.
	System bool
}

// Write writes p to w. Equal profiles give equal bytes.
//
// It fills in what the format leaves open as follows:
//
//   - A frame and the frames inlined into it are one location with several lines.
//   - A location's address is within the instruction, as with other writers of the
//     format: for callers, the return address minus one.
//   - Addresses in files are link-time addresses. Mappings of files therefore start at 0,
//     which tells pprof that addresses need no adjustment. It can disassemble the file
//     and look up unresolved names.
//   - The first mapping, which pprof shows as the profile's file, is the program of the
//     process with the most samples. For a whole system, it is the mapping whose code was
//     sampled most.
//   - The period is set if it is the same for all samples: for clocks, and if a period
//     was requested.
//   - A frame without a function is a location without lines, which pprof leaves out of
//     flame graphs. A function without a symbol is one like others, but does not count as
//     a known one of its mapping, so that pprof looks up its name.
//   - Each sample has the labels "comm", "pid" and, if known, "tid", "cpu", "container",
//     "container_id", "image", "pod", "namespace" and "unit". If the user part of a stack was truncated, "stack_end" has the reason.
//   - Comments contain the command line, what was measured where, and what was lost.
//   - Invalid UTF-8, which the format does not allow, is replaced by U+FFFD. Names are
//     otherwise unchanged.
func Write(w io.Writer, p *profile.Profile, o Options) error {
	// Names repeat. Better compression would take several times as long, for files that
	// are a twentieth smaller.
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
