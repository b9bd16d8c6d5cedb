// Package firefox writes recordings and profiles for the Firefox Profiler
// (https://profiler.firefox.com), in its "processed" format of version 70:
// gzipped JSON, which src/types/profile.ts of github.com/firefox-devtools/profiler
// describes.
//
// What the format leaves open is filled in so:
//
//   - A thread's samples weigh as much time as they stand for. A time off the
//     CPU is a sample where it begins and another where it ends, which together
//     weigh as much as it was long. Both are of the category "Idle", and so the
//     front end can leave them out: with them the call tree is of wall-clock
//     time, without them of time on the CPU.
//   - Over them all lies the use of the CPU between one sample and the next.
//   - Times off the CPU, requests to block devices and page faults are markers
//     with the stack that caused them, on the thread that did. That of a time off
//     the CPU is whoever ended it, if it is known where that was.
//   - What else stacks can be weighed by, such as bytes, are pseudo-threads of
//     the process, not shown at first.
//   - Inlined frames share the address of what they are inlined into.
//   - An address is counted from the library's lowest one, and lies within the
//     instruction: for callers that is the return address less one.
//   - A process or thread is called what it was called last; a marker tells of
//     each change.
package firefox

import (
	"compress/gzip"
	"fmt"
	"io"
	"time"

	"fulgur/internal/profile"
)

// The versions written, see src/app-logic/constants.ts of the front end. Of the
// processed format it upgrades older versions and refuses newer ones.
const (
	processedVersion = 70
	geckoVersion     = 36
)

// Options say how to write.
type Options struct {
	// Source, if not nil, returns the text of a source file, to be part of the
	// profile: the front end then shows it without asking anybody.
	Source func(file string) (text string, ok bool)
	// OffCPUMarker is the shortest time off the CPU that gets a marker; all are
	// samples. 0 means a millisecond.
	OffCPUMarker time.Duration
	// Version is that of the program that recorded, for the profile's
	// description.
	Version string
}

// Write writes a recording. Memory is that of its tables: events are read again
// for each column that they are part of.
func Write(w io.Writer, t *profile.Timeline, o Options) error {
	return compress(w, func(j *jsonWriter) error { return writeTimeline(j, t, o) })
}

// WriteProfile writes a profile that does not know when its samples were taken.
// Each task is a thread, and its samples follow one another as if it had first
// done all of the one thing and then all of the other: the call tree and the
// flame graph are right, the timeline shows shares and no order.
func WriteProfile(w io.Writer, p *profile.Profile, o Options) error {
	return compress(w, func(j *jsonWriter) error { return writeProfile(j, p, o) })
}

// compress writes what body writes through gzip.
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

// write writes a profile of threads and counters. The description comes last,
// when all is known; readers do not care.
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
	j.member("libs", t.libs)
	j.key("meta")
	d.write(j, t, tracks)
	j.end('}')
	return nil
}
