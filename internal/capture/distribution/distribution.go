// Package distribution reads distributions of times from the kernel side (bpf/histogram.h).
package distribution

import (
	"fmt"

	"github.com/cilium/ebpf"

	"fulgur/internal/bpf"
	"fulgur/internal/profile/encode/histogram"
)

// Kernel is a distribution in a map. The bindings of the other families have types of their own,
// which can be converted to it.
type Kernel bpf.LatencyHistogram

// octave is the number of slots of an octave.
const octave = uint64(bpf.LatencyHistogramLimitsHISTOGRAM_OCTAVE)

// bounds returns the least and the greatest time of a slot in ns, as histogram_slot has them.
func bounds(slot int) (low, high uint64) {
	n := uint64(slot)
	if n < octave {
		return n, n
	}
	width := uint64(1) << (n/octave - 1)
	low = (octave + n%octave) * width
	return low, low + width - 1
}

// Of returns the sum of the parts of a distribution, such as those of each CPU.
func Of(parts ...Kernel) (times histogram.Times) {
	var slots [len(Kernel{}.Slots)]uint64
	for i := range parts {
		part := &parts[i]
		for slot, n := range &part.Slots {
			slots[slot] += n
		}
		times.Sum += part.Sum
		for _, m := range part.Maxima {
			times.Max = max(times.Max, m.Ns)
		}
	}
	for slot, n := range &slots {
		if n > 0 {
			low, high := bounds(slot)
			times.Slots = append(times.Slots, histogram.Slot{Low: low, High: high, Count: n})
		}
	}
	return times
}

// OfCPUs reads a distribution from a map with one element for each CPU. T is a type that can be
// converted to [Kernel].
func OfCPUs[T any](m *ebpf.Map, convert func(T) Kernel) (histogram.Times, error) {
	var perCPU []T
	if err := m.Lookup(uint32(0), &perCPU); err != nil {
		return histogram.Times{}, fmt.Errorf("read the distribution of times: %w", err)
	}
	parts := make([]Kernel, len(perCPU))
	for i, part := range perCPU {
		parts[i] = convert(part)
	}
	return Of(parts...), nil
}
