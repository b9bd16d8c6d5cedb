package slow

import (
	"math/bits"

	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/stacks"
)

// ran is threads whose running time is divided among their samples.
type ran struct {
	pid, tid uint32 // tid is 0 unless threads are distinguished
	slow     bool
}

// divide divides the exact time that threads ran in intervals among the samples of the same threads: of those
// of a process, or of each thread if these are distinguished. Without samples, the time stays where the
// interval began. The sum does not change.
func divide(store *stacks.Store, source uint8) {
	running, samples := map[ran]uint64{}, map[ran]uint64{}
	of := func(s stacks.Sample) ran {
		return ran{store.Traces[s.Trace].PID, s.TID, s.Detail&latency.Slow != 0}
	}
	for s, v := range store.Samples {
		switch {
		case s.Source != source:
		case s.Detail&^latency.Slow == latency.Running:
			running[of(s)] += v[latency.Time]
		case s.Detail&^latency.Slow == latency.Sample:
			samples[of(s)] += v[latency.Intervals]
		}
	}
	given := map[ran]uint64{} // samples so far
	for s, v := range store.Samples {
		if s.Source != source {
			continue
		}
		switch group := of(s); s.Detail &^ latency.Slow {
		case latency.Running:
			if samples[group] > 0 {
				v[latency.Time] = 0
			}
		case latency.Sample:
			// Rounding the running sum keeps the total.
			before := given[group]
			given[group] += v[latency.Intervals]
			v[latency.Time] = part(running[group], given[group], samples[group]) - part(running[group], before, samples[group])
		default:
			continue
		}
		store.Samples[s] = v
	}
}

// part returns n * of / whole, for n of at most whole.
func part(of, n, whole uint64) uint64 {
	high, low := bits.Mul64(of, n)
	quotient, _ := bits.Div64(high, low, whole)
	return quotient
}
