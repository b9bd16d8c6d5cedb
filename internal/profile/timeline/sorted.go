package timeline

import (
	"iter"

	"fulgur/internal/profile"
)

// Sorted returns events with the samples and markers of each thread sorted by time. The
// input may be out of order: perf keeps a thread's samples in the buffers of all CPUs on
// which it ran, a sample that waits for unwind tables arrives late, and each event has a
// ring of its own.
func Sorted(events profile.Events) profile.Events { return sortedEvents{events} }

type sortedEvents struct{ profile.Events }

// sortedWindow is the number of samples or markers of a thread to sort at once: a minute at
// 1000 Hz, much more than perf buffers.
const sortedWindow = 60_000

// OnCPU implements [profile.Events].
func (e sortedEvents) OnCPU(t profile.ThreadID) iter.Seq2[profile.OnCPU, error] {
	return profile.Sorted(func(s profile.OnCPU) int64 { return s.Time }, sortedWindow, e.Events.OnCPU(t))
}

// Markers implements [profile.Events].
func (e sortedEvents) Markers(t profile.ThreadID) iter.Seq2[profile.Marker, error] {
	return profile.Sorted(func(m profile.Marker) int64 { return m.Time }, sortedWindow, e.Events.Markers(t))
}
