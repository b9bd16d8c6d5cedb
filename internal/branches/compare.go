package branches

import (
	"fmt"
	"math"
	"slices"
	"time"

	"fulgur/internal/message/plain"
)

// comparison says whether an optimized program takes less CPU time than the original.
type comparison struct {
	Verdict verdict `json:"verdict"`
	// Reason is why the programs were not compared, "" if they were.
	Reason string `json:"reason,omitempty"`
	// Runs is the number of runs of each program.
	Runs int `json:"runs"`
	// OriginalSeconds and OptimizedSeconds are medians of user CPU time.
	OriginalSeconds  float64 `json:"original_seconds"`
	OptimizedSeconds float64 `json:"optimized_seconds"`
	// Change is the median change of the CPU time from a run of the original to the next
	// of the optimized program, as a share; -0.1 is 10 % less. Low and High bound it with
	// a confidence of at least 95 %.
	Change float64 `json:"change"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// verdict is the result of a comparison.
type verdict string

const (
	faster       verdict = "faster"
	slower       verdict = "slower"
	noDifference verdict = "no difference"
	notCompared  verdict = "not compared"
)

// uncompared returns a comparison that was not possible.
func uncompared(format string, args ...any) comparison {
	return comparison{Verdict: notCompared, Reason: fmt.Sprintf(format, args...)}
}

// shortest is the shortest median CPU time to compare: some 25 ticks of the clock by which
// many kernels divide CPU time into user and system time.
const shortest = 100 * time.Millisecond

// compare compares the CPU times of two programs that ran in turn: original[i] and
// optimized[i] are neighbors, so that slow changes of the machine's speed affect both.
// The interval is from the sign test, which assumes nothing about the distribution.
func compare(original, optimized []time.Duration) comparison {
	n := min(len(original), len(optimized))
	rank := signRank(n)
	if rank == 0 {
		return uncompared("%s of each program are too few", plain.Count(uint64(n), "run"))
	}
	original, optimized = original[:n], optimized[:n]
	before, after := medianOf(seconds(original)), medianOf(seconds(optimized))
	changes := make([]float64, n)
	for i := range changes {
		changes[i] = optimized[i].Seconds()/original[i].Seconds() - 1
	}
	// If either median is long, the other short, they still differ.
	if max(before, after) < shortest.Seconds() || slices.ContainsFunc(changes, unusable) {
		return uncompared("a run takes only %d ms of CPU time: give it more work", int(1e3*max(before, after)))
	}
	slices.Sort(changes)
	c := comparison{
		Verdict: noDifference, Runs: n, OriginalSeconds: before, OptimizedSeconds: after,
		Change: medianOf(changes), Low: changes[rank-1], High: changes[n-rank],
	}
	switch {
	case c.High < 0:
		c.Verdict = faster
	case c.Low > 0:
		c.Verdict = slower
	}
	return c
}

func unusable(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }

// signRank returns the largest k for which the k-th smallest and the k-th largest of n
// values enclose the median with a probability of at least 95 %, 0 if there is none.
func signRank(n int) int {
	// Fewer than k of n values are below the median with the binomial probability of
	// fewer than k heads in n throws of a coin.
	const uncertain = 0.05
	k, outside, p := 0, 0.0, math.Pow(0.5, float64(n))
	for n > 0 && 2*k < n {
		outside += 2 * p
		if outside > uncertain {
			break
		}
		p *= float64(n-k) / float64(k+1)
		k++
	}
	return k
}

func seconds(times []time.Duration) []float64 {
	var s []float64
	for _, t := range times {
		s = append(s, t.Seconds())
	}
	return s
}

// medianOf returns the median of at least one value.
func medianOf(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// text describes c in a line.
func (c *comparison) text() string {
	if c.Verdict == notCompared {
		return "not compared with the original: " + plain.Terminal(c.Reason)
	}
	interval := fmt.Sprintf("95 %% interval %+.1f to %+.1f %%; %.2f instead of %.2f s, %d runs of each",
		100*c.Low, 100*c.High, c.OptimizedSeconds, c.OriginalSeconds, c.Runs)
	switch c.Verdict {
	case faster:
		return fmt.Sprintf("faster: %.1f %% less CPU time than the original (%s)", -100*c.Change, interval)
	case slower:
		return fmt.Sprintf("SLOWER: %.1f %% more CPU time than the original (%s)", 100*c.Change, interval)
	}
	return fmt.Sprintf("no difference to the original could be measured: %+.1f %% CPU time (%s)", 100*c.Change, interval)
}
