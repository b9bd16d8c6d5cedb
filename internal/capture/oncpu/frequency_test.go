package oncpu

import (
	"fmt"
	"testing"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/testenv"
)

// A change of the rate applies at once, and each sample keeps the weight that it was taken with.
func TestReduce(t *testing.T) {
	testenv.EveryKernel(t)
	const fast, slow = uint64(1_000_000_000) / 999, uint64(1_000_000_000) / 125 // periods in ns
	h := start(t, Options{Options: roomy, Idle: true}, target.Target{CPUs: []int{0}}, Rate{Frequency: 999})
	samples := func() uint64 {
		t.Helper()
		stats, err := h.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return stats.Samples
	}
	await := func(n uint64) {
		t.Helper()
		testenv.Await(t, func() bool { return samples() >= n }, func() string { return fmt.Sprintf("got %d samples, want %d", samples(), n) })
	}
	await(20)
	low := samples()
	if err := h.Reduce(8); err != nil {
		t.Fatal(err)
	}
	high := samples()
	await(high + 10)
	h.run(t, 0, time.Second)
	var all, weight uint64
	for _, v := range h.Counts().Total() {
		all += v[Samples]
		weight += v[Weight]
	}
	// all = before + after, weight = before * fast + after * slow
	before := (all*slow - weight) / (slow - fast)
	if (all-before)*slow+before*fast != weight || before < low || before > high {
		t.Errorf("got %d samples with a weight of %d, of which %d to %d were taken at the first rate", all, weight, low, high)
	}
	if n := h.events.CPUs(); n != 1 {
		t.Errorf("got events on %d CPUs, want 1", n)
	}
}
