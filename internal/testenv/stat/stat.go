// Package stat computes bounds for random counts. A test uses them in place of a guess
// such as "at least half", so that it fails only because something is wrong.
//
// Choose the function by the origin of the count:
//
//   - Every n-th event is counted: [EveryNth].
//   - Each of n things is counted with probability p, independently: [Binomial].
//   - Two independent counts of the same thing at the same time are compared: [Split].
//   - Events are random, with a known mean: [Poisson].
//   - A timer fires while a thread runs: [Ticks]. The thread's own CPU time is that
//     time, regardless of the machine's load.
package stat

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// Chance is the probability that a correct count is outside its bounds. A run of all
// tests compares some hundreds of counts, and fewer than one run in a million should
// fail.
const Chance = 1e-9

// Range holds the counts from Low to High, inclusive.
type Range struct {
	Low, High int
}

// Has reports whether n is in the range.
func (r Range) Has(n int) bool { return r.Low <= n && n <= r.High }

// String formats the range, as in "17 to 42".
func (r Range) String() string { return fmt.Sprintf("%d to %d", r.Low, r.High) }

// Check fails the test if got is outside the range. name describes the count.
func (r Range) Check(t testing.TB, name string, got int) {
	t.Helper()
	if !r.Has(got) {
		t.Errorf("%s: %d, chance allows %s", name, got, r)
	}
}

// Binomial returns the bounds for the number of n things that are counted, each with
// probability p, independently.
func Binomial(n int, p float64) Range {
	switch {
	case n < 0 || p < 0 || p > 1 || math.IsNaN(p):
		panic(fmt.Sprintf("stat: no binomial distribution of %d things with probability %v", n, p))
	case p == 0:
		return Range{0, 0}
	case p == 1:
		return Range{n, n}
	}
	logP, logQ := math.Log(p), math.Log1p(-p)
	all := logFactorial(n)
	mean := float64(n) * p
	return bounds(mean, mean*(1-p), n, func(k int) float64 {
		return all - logFactorial(k) - logFactorial(n-k) + float64(k)*logP + float64(n-k)*logQ
	})
}

// Poisson returns the bounds for the number of independent events with the given mean.
func Poisson(mean float64) Range {
	switch {
	case mean < 0 || math.IsNaN(mean) || math.IsInf(mean, 0):
		panic(fmt.Sprintf("stat: no Poisson distribution with the mean %v", mean))
	case mean == 0:
		return Range{0, 0}
	}
	logMean := math.Log(mean)
	return bounds(mean, mean, math.MaxInt, func(k int) float64 {
		return float64(k)*logMean - mean - logFactorial(k)
	})
}

// EveryNth returns the bounds for the number of counted events, when every n-th event of
// any kind is counted and other kinds come in between in an unrelated order. The kernel
// counts the events of each CPU separately and starts anywhere in the period; counters is
// the number of such counters.
func EveryNth(events, n, counters int) Range {
	if n < 1 || counters < 1 {
		panic(fmt.Sprintf("stat: every %dth event of %d counters", n, counters))
	}
	if n == 1 {
		return Range{events, events}
	}
	r := Binomial(events, 1/float64(n))
	// Without other kinds, each counter is off by at most one. For few events and many
	// counters that exceeds the binomial bound.
	return Range{
		max(0, min(r.Low, events/n-counters)),
		min(events, max(r.High, (events+n-1)/n+counters)),
	}
}

// Split returns the bounds for the first of two independent counts of the same kind of
// event with a known sum. The first is expected to be ratio times the second, for example
// the ratio of two sampling frequencies.
func Split(sum int, ratio float64) Range {
	return Binomial(sum, ratio/(1+ratio))
}

// Ticks returns the bounds for how often a timer with the given period fires while a
// thread runs that had the CPU for cpu in total, in the given number of slices. The timer
// and the slices start independently, so each slice is off by less than one tick. A slice
// ends where the thread leaves its CPU; /proc/PID/sched and getrusage count these. Add
// ticks that the kernel is known to have skipped to those observed.
func Ticks(cpu, period time.Duration, slices int) Range {
	if cpu < 0 || period <= 0 || slices < 0 {
		panic(fmt.Sprintf("stat: ticks every %v in %v of %d slices", period, cpu, slices))
	}
	mean := float64(cpu) / float64(period)
	// Each slice adds a variable of mean 0 within an interval of length 1. Hoeffding's
	// inequality bounds their sum.
	off := math.Sqrt(float64(slices) * math.Log(2/Chance) / 2)
	// No slice is off by more than one tick.
	off = min(off, float64(slices))
	return Range{max(0, int(math.Floor(mean-off))), int(math.Ceil(mean + off))}
}

// bounds returns the smallest range of a distribution with at most half of Chance on
// either side. No value is above highest. log returns the logarithm of a value's
// probability.
func bounds(mean, variance float64, highest int, log func(int) float64) Range {
	// Values further from the mean are negligible compared to Chance. The constant is for
	// the long tail of a small mean.
	reach := 40*math.Sqrt(variance) + 200
	first := max(0, int(mean-reach))
	last := highest
	if end := mean + reach; end < float64(highest) {
		last = int(end)
	}
	low, high := first, last
	for sum := 0.0; low < last; low++ {
		if sum += math.Exp(log(low)); sum > Chance/2 {
			break
		}
	}
	for sum := 0.0; high > low; high-- {
		if sum += math.Exp(log(high)); sum > Chance/2 {
			break
		}
	}
	return Range{low, high}
}

func logFactorial(n int) float64 {
	v, _ := math.Lgamma(float64(n) + 1)
	return v
}
