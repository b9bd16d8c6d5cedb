package noise

import (
	"fmt"
	"math"
	"slices"
)

// Base and New are the sides, as indexes.
const (
	Base = iota
	New
	sides
)

// Runs describe the runs of both sides.
type Runs struct {
	// Exposure is what the amounts of each run are divided by. It is positive.
	Exposure [2][]float64
	// Shares is set if Exposure is the sum of which the amounts are parts.
	Shares bool
	// Counted is set if the number of samples is known.
	Counted bool
}

// Quantity is a quantity that was measured in all runs.
type Quantity struct {
	// Machine is set if the amount also depends on what else the machine does, as that of kernel code
	// does: interrupts and page faults come in bursts. Otherwise it depends on a program alone.
	Machine bool
	// Amount has the amount in each run, and Samples the number of samples that it rests on,
	// if that is known.
	Amount, Samples [2][]float64
}

// Change is how a quantity changed.
type Change struct {
	// Rate is the rate on each side: amount by exposure, over all runs.
	Rate [2]float64
	// Low and High are the limits of the interval of the difference of the rates, new minus base. They
	// are NaN if the quantity was not tested.
	Low, High float64
	// P is the p-value, and Corrected the one for all quantities together. Both are 1 if the
	// quantity was not tested.
	P, Corrected float64
	// Tested is set if the quantity was tested: it has enough samples and is not the same in all
	// runs. Beyond is set if the change is beyond noise.
	Tested, Beyond bool
}

// Difference returns the difference of the rates, new minus base.
func (c Change) Difference() float64 { return c.Rate[New] - c.Rate[Base] }

// Result has a change for each quantity.
type Result struct {
	Changes []Change
	// Dispersion is the common dispersion of quantities of programs, 1 if runs vary as much as their counts do by chance, NaN if
	// the number of samples is unknown.
	Dispersion float64
	// Tests is the number of different tests, for which the p-values are corrected.
	Tests int

	freedom float64 // of the common dispersion
}

// Needed returns how many standard errors, by counts alone, the rate of a program's quantity must
// change to be found with a probability of 90 %.
func (r Result) Needed() float64 {
	const reached = 1.2815515655446004 // by 90 % of a normal distribution
	if r.Tests == 0 {
		return math.NaN()
	}
	return (studentQuantile(1-Alpha/2/float64(r.Tests), r.freedom) + reached) * math.Sqrt(r.Dispersion)
}

// Possible reports whether the runs can tell changes from noise: they are several, or counted.
func (r Runs) Possible() bool { return r.Counted || r.spread() > 0 }

// spread returns the degrees of freedom of the spread between runs.
func (r Runs) spread() int { return len(r.Exposure[Base]) + len(r.Exposure[New]) - 2 }

// Rate returns the rate of a quantity over the runs of both sides.
func (r Runs) Rate(q Quantity) float64 {
	return (sum(q.Amount[Base]) + sum(q.Amount[New])) / (sum(r.Exposure[Base]) + sum(r.Exposure[New]))
}

// Test compares both sides. It panics if a quantity does not have one amount for each run.
func Test(runs Runs, quantities []Quantity) Result {
	result := Result{Changes: make([]Change, len(quantities)), Dispersion: math.NaN()}
	tests, of := runs.distinct(quantities)
	estimates := make([]estimate, len(tests))
	for i, q := range tests {
		estimates[i] = runs.estimate(q)
	}
	candidates := make([]*estimate, 0, len(tests))
	for i := range estimates {
		if estimates[i].testable {
			candidates = append(candidates, &estimates[i])
		}
	}
	if runs.Possible() {
		result.Dispersion, result.freedom = runs.moderate(candidates)
	}
	result.Tests = len(candidates)
	verdicts := make([]Change, len(tests))
	quantiles := map[float64]float64{} // few, since groups share their degrees of freedom
	for i, e := range estimates {
		if _, ok := quantiles[e.freedom]; !ok && e.testable {
			quantiles[e.freedom] = studentQuantile(1-Alpha/2, e.freedom)
		}
		verdicts[i] = runs.change(e, quantiles[e.freedom])
	}
	holm(verdicts)
	for i, t := range of {
		result.Changes[i] = verdicts[t]
	}
	return result
}

// distinct returns the different quantities, and for each quantity the index of its equal.
func (r Runs) distinct(quantities []Quantity) (list []Quantity, of []int) {
	index := map[string]int{}
	of = make([]int, len(quantities))
	var key []byte
	for i, q := range quantities {
		key = fmt.Appendf(key[:0], "%t,", q.Machine)
		for side := range sides {
			if len(q.Amount[side]) != len(r.Exposure[side]) || r.Counted && len(q.Samples[side]) != len(r.Exposure[side]) {
				panic(fmt.Sprintf("noise: a quantity with %d amounts and %d numbers of samples for %d runs",
					len(q.Amount[side]), len(q.Samples[side]), len(r.Exposure[side])))
			}
			for _, list := range [][]float64{q.Amount[side], q.Samples[side]} {
				for _, v := range list {
					key = fmt.Appendf(key, "%x,", math.Float64bits(v))
				}
			}
		}
		at, ok := index[string(key)]
		if !ok {
			at = len(list)
			index[string(key)] = at
			list = append(list, q)
		}
		of[i] = at
	}
	return list, of
}

// estimate is what a quantity's runs say.
type estimate struct {
	machine bool
	rate    [2]float64
	samples [2]float64
	// between is the variance of the difference of the rates, if φ is 1: under the hypothesis that
	// both sides have the same rate, and without it.
	null, free float64
	// scale is the part of the variance of counts that remains in shares.
	scale float64
	// own is φ from the spread of this quantity alone. dispersion is the moderated one, and freedom its
	// degrees of freedom.
	own, dispersion, freedom float64
	testable                 bool
}

// estimate returns what the runs say about q, except for the moderated dispersion.
func (r Runs) estimate(q Quantity) estimate {
	e := estimate{machine: q.Machine}
	var amount, exposure [2]float64
	negative := false
	for side := range sides {
		for i, a := range q.Amount[side] {
			amount[side] += a
			exposure[side] += r.Exposure[side][i]
			negative = negative || a < 0
			if r.Counted {
				e.samples[side] += q.Samples[side][i]
				negative = negative || q.Samples[side][i] < 0
			}
		}
		e.rate[side] = amount[side] / exposure[side]
	}
	whole := exposure[Base] + exposure[New]
	rate, samples := (amount[Base]+amount[New])/whole, e.samples[Base]+e.samples[New]
	e.scale = 1
	if r.Shares {
		e.scale = max(0, 1-rate)
	}
	if !r.Counted {
		// The unit of φ is then the square of the rate, for a run of average length.
		samples = float64(len(r.Exposure[Base]) + len(r.Exposure[New]))
		e.scale = 1
	}
	// variance is that of the rate from an exposure, if φ is 1.
	variance := func(of float64) float64 { return rate * rate / samples * whole / of * e.scale }
	e.testable = r.Possible() && !negative && rate > 0 && e.scale > 1e-9 && (!r.Counted || samples >= MinSamples)
	if !e.testable {
		return e
	}
	e.null = variance(exposure[Base]) + variance(exposure[New])
	e.free = e.null
	if r.Counted {
		e.free = 0
		for side := range sides {
			own, n := e.rate[side], e.samples[side]
			if n < 1 {
				own, n = rate/samples*whole/exposure[side], 1 // as if one sample had been there
			}
			v := own * own / n
			if r.Shares {
				v *= max(0, 1-own)
			}
			e.free += v
		}
	}
	if freedom := r.spread(); freedom > 0 {
		sum := 0.0
		for side := range sides {
			for i, a := range q.Amount[side] {
				off := a/r.Exposure[side][i] - e.rate[side]
				sum += off * off / variance(r.Exposure[side][i])
			}
		}
		e.own = sum / float64(freedom)
	}
	return e
}

// machineFreedom is the most degrees of freedom that say how much quantities of the machine vary: few,
// since they do not vary alike. Changes between equal runs had the tails of a t distribution with 3 to
// 4 degrees of freedom.
const machineFreedom = 3

// moderate sets the dispersion of estimates, and returns the common one of quantities of programs, with
// its degrees of freedom.
func (r Runs) moderate(list []*estimate) (common, freedom float64) {
	least := 1.0
	if !r.Counted {
		least = 0
	}
	for _, machine := range []bool{true, false} {
		group := slices.DeleteFunc(slices.Clone(list), func(e *estimate) bool { return e.machine != machine })
		peers := group
		if len(peers) < fewTests {
			peers = list
		}
		most := math.Inf(1)
		if machine {
			most = machineFreedom
		}
		common, freedom = r.moderateBy(group, peers, least, most)
	}
	return common, freedom
}

// moderateBy sets the dispersion of a group of estimates by that of its peers. It is not below least, and
// the common estimate has at most the weight most. moderateBy returns the common estimate, and the
// degrees of freedom of all.
func (r Runs) moderateBy(group, peers []*estimate, least, most float64) (common, freedom float64) {
	spread := float64(r.spread())
	if spread == 0 {
		common = max(least, inflation(peers))
		for _, e := range group {
			e.dispersion, e.freedom = common, most
		}
		return common, most
	}
	own := make([]float64, len(peers))
	for i, e := range peers {
		own[i] = e.own
	}
	common, weight := prior(own, spread)
	weight = min(weight, most)
	// All runs together do not have more degrees of freedom.
	freedom = min(spread+weight, spread*float64(max(1, len(peers))))
	for _, e := range group {
		e.dispersion, e.freedom = common, freedom
		if !math.IsInf(weight, 1) {
			e.dispersion = (weight*common + spread*e.own) / (weight + spread)
		}
		e.dispersion = max(least, e.dispersion)
	}
	return max(least, common), freedom
}

// fewTests is the number of tests below which their spread says nothing.
const fewTests = 10

// inflation returns by how much the changes vary more than their counts explain: the scale at which the
// mean of their squares, limited to that of a change at the edge of a 95 % interval, is as expected
// (Huber's proposal 2). A few real changes move it little.
func inflation(list []*estimate) float64 {
	const limit, expected = 3.841458820694124, 0.9129724772511085
	if len(list) < fewTests {
		return 1
	}
	squares := make([]float64, len(list))
	for i, e := range list {
		off := e.rate[New] - e.rate[Base]
		squares[i] = off * off / e.null
	}
	low, high := 0.0, slices.Max(squares)/expected+1
	for range 60 {
		middle, total := (low+high)/2, 0.0
		for _, s := range squares {
			total += min(s/middle, limit)
		}
		if total > expected*float64(len(squares)) {
			low = middle
		} else {
			high = middle
		}
	}
	return (low + high) / 2
}

// prior fits the estimates of a variance, each with the given degrees of freedom, as multiples of
// scaled inverse chi-square variables: it returns their common value, and its weight in degrees of
// freedom, which is infinite if the estimates differ no more than by chance.
func prior(own []float64, freedom float64) (common, weight float64) {
	if len(own) == 0 {
		return 1, 0
	}
	middle := median(slices.Clone(own))
	if middle == 0 || len(own) < fewTests {
		return mean(own), 0
	}
	logs := make([]float64, len(own))
	for i, v := range own {
		// An estimate near 0 has a logarithm that would outweigh all others.
		logs[i] = math.Log(max(v, 1e-3*middle)) - digamma(freedom/2) + math.Log(freedom/2)
	}
	center, variance := mean(logs), 0.0
	for _, l := range logs {
		variance += (l - center) * (l - center) / float64(len(logs)-1)
	}
	excess := variance - trigamma(freedom/2)
	if excess <= 0 {
		return math.Exp(center), math.Inf(1)
	}
	weight = 2 * inverseTrigamma(excess)
	return math.Exp(center + digamma(weight/2) - math.Log(weight/2)), weight
}

// change returns the result of a test before the correction for all. quantile is that of the interval.
func (r Runs) change(e estimate, quantile float64) Change {
	c := Change{Rate: e.rate, Low: math.NaN(), High: math.NaN(), P: 1, Corrected: 1}
	if !e.testable {
		return c
	}
	c.Tested = true
	off := c.Difference()
	reach := quantile * math.Sqrt(e.dispersion*e.free)
	c.Low, c.High = off-reach, off+reach
	if off == 0 {
		return c
	}
	deviation := math.Sqrt(e.dispersion * e.null)
	if deviation == 0 { // without counts, if runs of either side are the same
		c.P = 0
		return c
	}
	c.P = studentTails(off/deviation, e.freedom)
	if r.Counted {
		c.P = max(c.P, r.exact(e))
	}
	return c
}

// exact returns the p-value of the counts alone: that of a binomial number of samples on the new
// side, if all samples are divided by the dispersion.
func (r Runs) exact(e estimate) float64 {
	by := e.dispersion * e.scale
	base, changed := e.samples[Base]/by, e.samples[New]/by
	exposed := sum(r.Exposure[New]) / (sum(r.Exposure[Base]) + sum(r.Exposure[New]))
	return min(1, 2*min(binomialAbove(changed, base, exposed), binomialAbove(base, changed, 1-exposed)))
}

// holm corrects the p-values of tests by Holm's method, and decides.
func holm(tests []Change) {
	var order []int
	for i, t := range tests {
		if t.Tested {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case tests[a].P < tests[b].P:
			return -1
		case tests[a].P > tests[b].P:
			return 1
		}
		return a - b
	})
	highest := 0.0
	for rank, i := range order {
		t := &tests[i]
		highest = max(highest, min(1, t.P*float64(len(order)-rank)))
		t.Corrected = highest
		t.Beyond = highest <= Alpha && (t.Low > 0 || t.High < 0)
	}
}

func sum(list []float64) (s float64) {
	for _, v := range list {
		s += v
	}
	return s
}

func mean(list []float64) float64 { return sum(list) / float64(len(list)) }

// median returns the median of list, which it sorts.
func median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}
