// Package otlp writes profiles as OpenTelemetry's ProfilesData, uncompressed protocol
// buffers: opentelemetry/proto/profiles/v1development/profiles.proto of opentelemetry-proto
// 1.10. Field numbers changed in that version: readers of older ones see no values.
package otlp

import (
	"fmt"
	"io"
	"slices"

	"fulgur/internal/profile"
)

// Options add to a profile.
type Options struct {
	// Resource has attributes of the machine, which all resources get. They take
	// precedence over those that the profile has.
	Resource map[string]string
}

// Write writes p to w. Equal profiles give equal bytes.
//
// It fills in what the format leaves open as follows:
//
//   - There is a resource for each process, with the attributes of its container, pod and
//     systemd unit, as far as known, and those that it publishes itself, which override
//     service.name only. Its profiles, one for each type of value, have
//     the same samples, whose only value is the sum. Only the first has values of 0.
//   - Each sample has the attributes thread.name and, if known, thread.id and
//     cpu.logical_number. If the user part of its stack was truncated, fulgur.stack.end
//     has the reason.
//   - A frame and the frames inlined into it are one location with several lines. Its
//     address is within the instruction: for callers, the return address minus one.
//   - Addresses in files are link-time addresses. Mappings of files therefore span the
//     whole address space. They have the attributes process.executable.build_id.gnu,
//     .go and .htlhash, as far as known.
//   - The period is that of pprof's format, with two exceptions. Readers multiply counts by
//     the period, so counts that may include waits have a period of 1, of their own type, as do
//     values without a known period. The value off-cpu has OpenTelemetry's name, off_cpu, and no
//     period.
//   - The scope's attributes are the command line, the event and what was measured. Each profile has
//     the attributes of the run: its description ("fulgur.run"), and what was lost,
//     "fulgur.lost.CAUSE" for a [profile.Loss]; also the requested rate in Hz
//     ("fulgur.frequency.requested") if the rate was lowered, the factor by which samples and waits
//     are rarer ("fulgur.reduction"), and "fulgur.names.omitted" if functions were not looked up.
//   - profile_id is a hash of the contents: a profile that is sent again has the same one.
//   - Invalid UTF-8 is replaced by U+FFFD.
func Write(w io.Writer, p *profile.Profile, o Options) error {
	if hasTooMany(p) {
		return errTooMany
	}
	e := newEncoder(p, o)
	for _, head := range e.encode() {
		if _, err := w.Write(head); err != nil {
			return fmt.Errorf("write OTLP profile: %w", err)
		}
	}
	return nil
}

// maxProfiles limits the profiles of a file, since each process has one for each type of value.
const maxProfiles = 1 << 20

var errTooMany = fmt.Errorf("write OTLP profile: more than %d processes with their values: choose one value, or another format", maxProfiles)

// hasTooMany reports whether p has more processes with their values than maxProfiles.
func hasTooMany(p *profile.Profile) bool {
	known := map[processKey]bool{}
	for _, s := range p.Samples {
		known[keyOf(p, s)] = true
		if len(known)*len(p.ValueTypes) > maxProfiles {
			return true
		}
	}
	return false
}

// Message returns what [Write] writes, and the number of OTLP profiles in it: one for each
// process and type of value.
func Message(p *profile.Profile, o Options) (message []byte, profiles int) {
	e := newEncoder(p, o)
	message = slices.Concat(e.encode()...)
	return message, e.profiles
}
