package main

import (
	"cmp"
	"slices"
)

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
