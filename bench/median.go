package main

import (
	"cmp"
	"fmt"
	"slices"
)

// spread holds the median and the range of the ratios of two figures, by round. A change in the
// machine's speed between rounds affects the figures more than their ratio.
type spread struct {
	median, low, high float64
	rounds            int
}

// spreadOf returns the spread of ratios, which it sorts.
func spreadOf(ratios []float64) spread {
	n := len(ratios)
	if n == 0 {
		return spread{}
	}
	slices.Sort(ratios)
	return spread{(ratios[(n-1)/2] + ratios[n/2]) / 2, ratios[0], ratios[n-1], n}
}

// String returns the spread as a cell of a table.
func (s spread) String() string {
	if s.rounds == 1 {
		return fmt.Sprintf("%.2f×", s.median)
	}
	return fmt.Sprintf("%.2f× [%.2f–%.2f]", s.median, s.low, s.high)
}

// median returns the median of each figure of runs. For losses it returns the maximum:
// one run with losses is too many.
func median(runs []cost) cost {
	return cost{
		Samples:   middle(runs, func(c cost) uint64 { return c.Samples }),
		Lost:      most(runs, func(c cost) uint64 { return c.Lost }),
		Stackless: most(runs, func(c cost) uint64 { return c.Stackless }),
		CPU:       middle(runs, func(c cost) float64 { return c.CPU }),
		CPUAfter:  middle(runs, func(c cost) float64 { return c.CPUAfter }),
		Start:     middle(runs, func(c cost) float64 { return c.Start }),
		Result:    middle(runs, func(c cost) float64 { return c.Result }),
		StartCPU:  middle(runs, func(c cost) float64 { return c.StartCPU }),
		EndCPU:    middle(runs, func(c cost) float64 { return c.EndCPU }),
		Steady:    middle(runs, func(c cost) float64 { return c.Steady }),
		Running:   middle(runs, func(c cost) float64 { return c.Running }),
		RSS:       middle(runs, func(c cost) uint64 { return c.RSS }),
		Anonymous: middle(runs, func(c cost) uint64 { return c.Anonymous }),
		Maps:      middle(runs, func(c cost) uint64 { return c.Maps }),
		BPF:       middle(runs, func(c cost) float64 { return c.BPF }),
		BPFShare:  middle(runs, func(c cost) float64 { return c.BPFShare }),
		Runs:      middle(runs, func(c cost) uint64 { return c.Runs }),
	}
}

// middle returns the median of a figure, the lower one of an even number of runs. There
// must be a run.
func middle[T cmp.Ordered](runs []cost, figure func(cost) T) T {
	return sorted(runs, figure)[(len(runs)-1)/2]
}

func most[T cmp.Ordered](runs []cost, figure func(cost) T) T {
	return sorted(runs, figure)[len(runs)-1]
}

func sorted[T cmp.Ordered](runs []cost, figure func(cost) T) []T {
	values := make([]T, len(runs))
	for i, r := range runs {
		values[i] = figure(r)
	}
	slices.Sort(values)
	return values
}
