package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// interval is a 95 % interval of a number.
type interval struct{ low, high float64 }

// resamples is the number of resamples of a bootstrap.
const resamples = 10_000

// bootstrap returns the percentile interval of a statistic over n rounds: its values over
// rounds drawn with replacement, without the smallest and the largest 2.5 %. The same rounds
// give the same interval.
func bootstrap(n int, statistic func(rounds []int) float64) interval {
	random := rand.New(rand.NewPCG(1, 0))
	rounds, values := make([]int, n), make([]float64, resamples)
	for i := range values {
		for j := range rounds {
			rounds[j] = random.IntN(n)
		}
		values[i] = statistic(rounds)
	}
	slices.Sort(values)
	at := func(share float64) float64 { return values[int(math.Round(share*(resamples-1)))] }
	return interval{at(0.025), at(0.975)}
}

// change returns the median change of the times in some rounds against the times before, by
// round: -0.1 if they are 10 % shorter.
func change(times, before []time.Duration, rounds []int) float64 {
	changes := make([]float64, len(rounds))
	for i, r := range rounds {
		changes[i] = times[r].Seconds()/before[r].Seconds() - 1
	}
	return median(changes)
}

// allRounds returns the numbers of n rounds.
func allRounds(n int) []int {
	rounds := make([]int, n)
	for i := range rounds {
		rounds[i] = i
	}
	return rounds
}

// median returns the median, the lower one of an even number.
func median[T int | float64 | time.Duration](values []T) T {
	return slices.Sorted(slices.Values(values))[(len(values)-1)/2]
}
