// Package stat computes the bounds that a count keeps to when chance decides
// it. A test compares with these bounds instead of a guess such as "at least
// half", so that it fails because something is wrong and for no other reason.
//
// Choose the function by how the count comes about:
//
//   - Every n-th of the events was counted: [EveryNth].
//   - Each of n things is counted with probability p, regardless of the
//     others: [Binomial].
//   - Two counts of the same thing, taken at the same time and regardless of
//     each other, are compared: [Split].
//   - Events come at random, so many on average: [Poisson].
//   - A timer fires while a thread runs: [Ticks]. The thread's own CPU time
//     says how long that was, whatever else the machine does.
package stat

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// Chance is the probability that a correct count is outside its bounds. A run
// of all tests compares some hundreds of counts, and fewer than one run in a
// million may fail.
const Chance = 1e-9

// Range holds the counts from Low to High, both included.
type Range struct {
	Low, High int
}

// Has reports whether n is in the range.
func (r Range) Has(n int) bool { return r.Low <= n && n <= r.High }

// String formats the range as in "17 to 42".
func (r Range) String() string { return fmt.Sprintf("%d to %d", r.Low, r.High) }

// Check fails the test if got is outside the range. The name says what was
// counted.
func (r Range) Check(t testing.TB, name string, got int) {
	t.Helper()
	if !r.Has(got) {
		t.Errorf("%s: %d, chance allows %s", name, got, r)
	}
}

// Binomial returns the bounds for how many of n things are counted, when each
// is counted with probability p regardless of the others.
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

// Poisson returns the bounds for how many events there are of which mean
// happen on average, each regardless of the others.
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

// EveryNth returns the bounds for how many of the given events are counted,
// when every n-th event of any sort is counted and other sorts come in
// between, in an order that does not follow the count. The kernel counts the
// events of each CPU apart and begins anywhere in the period; counters says
// how many such counters there are.
func EveryNth(events, n, counters int) Range {
	if n < 1 || counters < 1 {
		panic(fmt.Sprintf("stat: every %dth event of %d counters", n, counters))
	}
	if n == 1 {
		return Range{events, events}
	}
	r := Binomial(events, 1/float64(n))
	// Without others in between, each counter is off by at most one. For few
	// events and many counters that is more than the binomial bound.
	return Range{
		max(0, min(r.Low, events/n-counters)),
		min(events, max(r.High, (events+n-1)/n+counters)),
	}
}

// Split returns the bounds for one of two counts whose sum is known, when both
// count events of the same sort regardless of each other. The first is
// expected to be ratio times the second, as in the ratio of two sampling
// frequencies.
func Split(sum int, ratio float64) Range {
	return Binomial(sum, ratio/(1+ratio))
}

// Ticks returns the bounds for how often a timer that fires once a period does
// so while a thread runs that had the CPU for cpu in all, in the given number
// of slices. The timer and the slices begin regardless of each other, so each
// slice is off by less than one tick. A slice ends where the thread leaves its
// CPU; /proc/PID/sched and getrusage count these. Ticks that the kernel is
// known to have skipped are to be added to those that were seen.
func Ticks(cpu, period time.Duration, slices int) Range {
	if cpu < 0 || period <= 0 || slices < 0 {
		panic(fmt.Sprintf("stat: ticks every %v in %v of %d slices", period, cpu, slices))
	}
	mean := float64(cpu) / float64(period)
	// Each slice adds a variable of mean 0 within an interval of length 1:
	// Hoeffding's inequality bounds their sum.
	off := math.Sqrt(float64(slices) * math.Log(2/Chance) / 2)
	// No slice is off by more than one tick.
	off = min(off, float64(slices))
	return Range{max(0, int(math.Floor(mean-off))), int(math.Ceil(mean + off))}
}

// bounds returns the smallest range of a distribution with at most half of
// Chance on either side of it. No value is above most; log returns the
// logarithm of a value's probability.
func bounds(mean, variance float64, most int, log func(int) float64) Range {
	// Values further from the mean than this add nothing that counts against
	// Chance. The constant is for the long tail of a small mean.
	reach := 40*math.Sqrt(variance) + 200
	first := max(0, int(mean-reach))
	last := most
	if end := mean + reach; end < float64(most) {
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
