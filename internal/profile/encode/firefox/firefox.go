// Package firefox writes recordings and profiles for the Firefox Profiler
// (https://profiler.firefox.com), in its "processed" format of version 70:
// gzipped JSON, which src/types/profile.ts of github.com/firefox-devtools/profiler
// describes.
//
// It fills in what the format leaves open as follows:
//
//   - A sample's weight is the time that it represents. A period off the CPU has a sample
//     at its start and another at its end, whose weights add up to its duration. Both
//     have the category "Idle", which the front end can hide: with them the call tree is
//     of wall-clock time, without them of CPU time.
//   - Each sample also has the CPU usage since the previous one.
//   - Periods off the CPU, block device requests, page faults and hits of events are
//     markers with the stack that caused them, on the thread that did. The stack of a
//     period off the CPU is its waker's, if known. Each event has a type of markers.
//   - Other weights of stacks, such as bytes, are pseudo-threads of the process,
//     initially hidden.
//   - Inlined frames share the address of the function that contains them.
//   - Addresses are relative to the library's lowest address and within the instruction:
//     for callers, the return address minus one.
//   - A process or thread has its last name; a marker records each change.
package firefox

import (
	"compress/gzip"
	"fmt"
	"io"

	"fulgur/internal/profile"
)

// The versions written, see src/app-logic/constants.ts of the front end. It upgrades
// older versions of the processed format and rejects newer ones.
const (
	processedVersion = 70
	geckoVersion     = 36
)

// Options configures the output.
type Options struct {
	// Source, if not nil, returns the text of a source file to include in the profile.
	// The front end can then show it without a server.
	Source func(file string) (text string, ok bool)
}

// Write writes a recording. It keeps only the tables in memory, and reads the events
// again for each of their columns.
func Write(w io.Writer, t *profile.Timeline, o Options) error {
	return compress(w, func(j *jsonWriter) error { return writeTimeline(j, t, o) })
}

// WriteProfile writes a profile without sample times. Each task is a thread whose samples
// follow one another, grouped by stack. The call tree and the flame graph are correct;
// the timeline shows shares but no order.
func WriteProfile(w io.Writer, p *profile.Profile, o Options) error {
	return compress(w, func(j *jsonWriter) error { return writeProfile(j, p, o) })
}

// compress writes the output of body through gzip.
func compress(w io.Writer, body func(*jsonWriter) error) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	j := newJSONWriter(z)
	if err := body(j); err != nil {
		return fmt.Errorf("write Firefox profile: %w", err)
	}
	if err := j.flush(); err != nil {
		return fmt.Errorf("write Firefox profile: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write Firefox profile: %w", err)
	}
	return nil
}

// write writes a profile of threads and counters. The metadata comes last, when
// everything is known. The order does not matter to readers.
func write(j *jsonWriter, t *tables, d description, tracks []*track, counters []counter) error {
	if len(tracks) == 0 {
		tracks = []*track{newEmptyTrack()}
	}
	j.begin('{')
	j.key("threads")
	j.begin('[')
	for _, k := range tracks {
		if err := k.write(j, t); err != nil {
			return err
		}
	}
	j.end(']')
	j.key("counters")
	j.array(func() {
		for _, c := range counters {
			c.write(j)
		}
	})
	j.key("pages")
	j.raw("[]")
	j.key("shared")
	t.writeShared(j)
	j.member("libs", append([]lib{}, t.libs...)) // the Profiler cannot load null
	j.key("meta")
	d.write(j, t, tracks)
	j.end('}')
	return nil
}
