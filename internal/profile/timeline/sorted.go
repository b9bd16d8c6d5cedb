package timeline

import (
	"iter"

	"fulgur/internal/profile"
)

// Sorted returns events with the samples of each thread in the order of their times,
// in which those of one thread need not come: perf has them in the buffers of all
// CPUs that it ran on, and a sample that waits for unwind tables comes after others.
func Sorted(events profile.Events) profile.Events { return sortedEvents{events} }

type sortedEvents struct{ profile.Events }

// sortedWindow is how many samples of one thread are sorted at once: those of a
// minute at 1000 Hz, far more than perf keeps in its buffers.
const sortedWindow = 60_000

// OnCPU implements [profile.Events].
func (e sortedEvents) OnCPU(t profile.ThreadID) iter.Seq2[profile.OnCPU, error] {
	return profile.Sorted(func(s profile.OnCPU) int64 { return s.Time }, sortedWindow, e.Events.OnCPU(t))
}
