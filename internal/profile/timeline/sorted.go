package timeline

import (
	"iter"

	"fulgur/internal/profile"
)

// Sorted returns events with the samples of each thread sorted by time. The input may be
// out of order: perf keeps a thread's samples in the buffers of all CPUs on which it ran,
// and a sample that waits for unwind tables arrives late.
func Sorted(events profile.Events) profile.Events { return sortedEvents{events} }

type sortedEvents struct{ profile.Events }

// sortedWindow is the number of samples of a thread to sort at once: a minute at 1000 Hz,
// much more than perf buffers.
const sortedWindow = 60_000

// OnCPU implements [profile.Events].
func (e sortedEvents) OnCPU(t profile.ThreadID) iter.Seq2[profile.OnCPU, error] {
	return profile.Sorted(func(s profile.OnCPU) int64 { return s.Time }, sortedWindow, e.Events.OnCPU(t))
}
