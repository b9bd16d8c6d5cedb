package noise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// seeded returns the same numbers in each run: no result depends on chance.
func seeded(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, 46)) }

// simulation draws the samples of a program with functions of given shares.
type simulation struct {
	rng    *rand.Rand
	shares []float64
	runs   [2]int
	// samples is the mean number of samples of a run, and length the relative deviation of lengths.
	samples, length float64
	// spread is the variance of a function's share in a run, relative to that of its samples; 0 for none.
	spread float64
	// grown is the factor by which function 0 grows.
	grown float64
}

// poisson returns a Poisson number with a mean: exact for few, rounded from a normal variable for many.
func (s *simulation) poisson(mean float64) float64 {
	if mean > 500 {
		return max(0, math.Round(mean+math.Sqrt(mean)*s.rng.NormFloat64()))
	}
	n, product := -1.0, 1.0
	for limit := math.Exp(-mean); product > limit; n++ {
		product *= s.rng.Float64()
	}
	return n
}

// compare draws runs and compares their shares.
func (s *simulation) compare() Result {
	runs, quantities := s.draw()
	return Test(runs, quantities)
}

func (s *simulation) draw() (Runs, []Quantity) {
	runs := Runs{Shares: true, Counted: true}
	quantities := make([]Quantity, len(s.shares))
	for side, n := range s.runs {
		for range n {
			size, sum := s.samples*math.Exp(s.length*s.rng.NormFloat64()), 0.0
			for i, share := range s.shares {
				mean := share * size
				if side == New && i == 0 && s.grown > 0 {
					mean *= s.grown
				}
				mean = max(0, mean+math.Sqrt(s.spread*mean)*s.rng.NormFloat64())
				v := s.poisson(mean)
				sum += v
				quantities[i].Amount[side] = append(quantities[i].Amount[side], v)
			}
			runs.Exposure[side] = append(runs.Exposure[side], max(1, sum))
		}
	}
	for i := range quantities {
		quantities[i].Samples = quantities[i].Amount
	}
	return runs, quantities
}

// long returns the shares of n functions as profiles have them: few hot, many cold.
func long(n int) []float64 {
	list, sum := make([]float64, n), 0.0
	for i := range list {
		list[i] = 1 / float64(i+3)
		sum += list[i]
	}
	for i := range list {
		list[i] /= sum
	}
	return list
}

// Of equal sides, at most 5 % show any change, whatever the number of runs, their lengths and the
// number of functions. With one run a side, this holds if runs vary as their samples, or alike.
func TestEqualSides(t *testing.T) {
	const trials = 200
	for _, c := range []simulation{
		{runs: [2]int{1, 1}, samples: 2000, shares: long(40)},
		{runs: [2]int{1, 1}, samples: 50000, shares: long(500)},
		{runs: [2]int{1, 1}, samples: 500, shares: long(8)},
		{runs: [2]int{1, 1}, samples: 2000, length: 1, shares: long(40)},
		{runs: [2]int{1, 1}, samples: 5000, spread: 2, shares: long(60)},
		{runs: [2]int{1, 3}, samples: 2000, spread: 1, shares: long(40)},
		{runs: [2]int{2, 2}, samples: 2000, spread: 1, shares: long(40)},
		{runs: [2]int{3, 3}, samples: 2000, shares: long(40)},
		{runs: [2]int{3, 3}, samples: 5000, spread: 4, shares: long(200)},
		{runs: [2]int{3, 3}, samples: 2000, length: 0.5, spread: 1, shares: long(40)},
		{runs: [2]int{10, 10}, samples: 1000, spread: 1, shares: long(100)},
		{runs: [2]int{5, 5}, samples: 2000, spread: 3, shares: long(5)},
	} {
		c.rng = seeded(1)
		t.Run(fmt.Sprintf("%v runs, %v samples, spread %v, %d functions", c.runs, c.samples, c.spread, len(c.shares)), func(t *testing.T) {
			shown := 0
			for range trials {
				if slices.ContainsFunc(c.compare().Changes, func(c Change) bool { return c.Beyond }) {
					shown++
				}
			}
			t.Logf("%d of %d", shown, trials)
			if shown > trials/20 {
				t.Errorf("%d of %d pairs of equal sides show a change, want at most %d", shown, trials, trials/20)
			}
		})
	}
}

// Real changes are found, and the limit of 90 % that the result states is about right.
func TestChangedSides(t *testing.T) {
	const trials = 200
	for _, c := range []simulation{
		{runs: [2]int{1, 1}, samples: 10000, grown: 1.5, shares: long(40)},
		{runs: [2]int{3, 3}, samples: 3000, grown: 1.5, shares: long(40)},
		{runs: [2]int{5, 5}, samples: 5000, spread: 2, grown: 1.5, shares: long(200)},
	} {
		c.rng = seeded(2)
		found := 0
		for range trials {
			if r := c.compare(); r.Changes[0].Beyond && r.Changes[0].Difference() > 0 {
				found++
			}
		}
		if found < trials*95/100 {
			t.Errorf("%v runs of %v samples: found %d of %d changes", c.runs, c.samples, found, trials)
		}
	}
	s := simulation{rng: seeded(3), runs: [2]int{3, 3}, samples: 3000, shares: slices.Repeat([]float64{0.1}, 10)}
	for range 2 { // enough tests for their spread to say something
		s.shares = append(s.shares, s.shares...)
	}
	for i := range s.shares {
		s.shares[i] = 1 / float64(len(s.shares))
	}
	p := s.shares[0]
	needed := s.compare().Needed() * math.Sqrt(p*(1-p)*2/9000)
	s.grown = 1 + needed/p/(1-p)
	found := 0
	for range trials {
		if s.compare().Changes[0].Beyond {
			found++
		}
	}
	if found < trials*75/100 || found > trials*99/100 {
		t.Errorf("found %d of %d changes of the size that is found in 9 of 10", found, trials)
	}
}

// Intervals contain the change in 95 % of all trials.
func TestIntervals(t *testing.T) {
	for _, c := range []simulation{
		{runs: [2]int{1, 1}, samples: 4000, grown: 1.2, shares: long(30)},
		{runs: [2]int{3, 3}, samples: 4000, spread: 2, grown: 1.2, shares: long(30)},
	} {
		c.rng = seeded(4)
		whole := 1 + c.shares[0]*(c.grown-1)
		want := c.shares[0]*c.grown/whole - c.shares[0]
		inside, trials := 0, 600
		for range trials {
			if r := c.compare().Changes[0]; r.Low <= want && want <= r.High {
				inside++
			}
		}
		if inside < 558 || inside > 594 {
			t.Errorf("%v runs: %d of %d intervals contain the change, want 95 %%", c.runs, inside, trials)
		}
	}
}

// What a comparison says does not depend on the unit, on the order of runs and functions, nor on
// rows that repeat others, and swapping the sides changes signs only.
func TestInvariants(t *testing.T) {
	for _, runs := range [][2]int{{1, 1}, {3, 2}} {
		for _, shares := range []bool{true, false} {
			s := simulation{rng: seeded(5), runs: runs, samples: 3000, spread: 1, grown: 1.6, shares: long(30)}
			r, list := s.draw()
			r.Shares = shares
			if !shares {
				for side := range r.Exposure {
					r.Exposure[side] = slices.Repeat([]float64{1}, runs[side])
				}
			}
			want := Test(r, list)
			if !want.Changes[0].Beyond {
				t.Fatalf("%v runs: a change of 60 %% is not found", runs)
			}
			check := func(what string, got []Change, factor float64) {
				t.Helper()
				for i, w := range want.Changes {
					g := got[i]
					near(t, what+": p", g.P, w.P, 1e-9)
					near(t, what+": difference", g.Difference(), factor*w.Difference(), 1e-9)
					if g.Beyond != w.Beyond || g.Tested != w.Tested {
						t.Fatalf("%s: quantity %d: got %+v, want %+v", what, i, g, w)
					}
				}
			}
			in := func(by float64) []Quantity { // another unit
				scaled := make([]Quantity, len(list))
				for i, q := range list {
					scaled[i] = Quantity{Samples: q.Samples}
					for side := range q.Amount {
						for _, v := range q.Amount[side] {
							scaled[i].Amount[side] = append(scaled[i].Amount[side], by*v)
						}
					}
				}
				return scaled
			}
			unit := r
			if shares {
				for side := range unit.Exposure {
					unit.Exposure[side] = nil
					for _, v := range r.Exposure[side] {
						unit.Exposure[side] = append(unit.Exposure[side], 1024*v)
					}
				}
				check("another unit", Test(unit, in(1024)).Changes, 1)
			} else {
				check("another unit", Test(unit, in(1024)).Changes, 1024)
			}
			check("repeated rows", Test(r, slices.Concat(list, list, list)).Changes, 1)

			swapped, mirrored := r, slices.Clone(list)
			swapped.Exposure = [2][]float64{r.Exposure[New], r.Exposure[Base]}
			for i, q := range list {
				mirrored[i] = Quantity{Amount: [2][]float64{q.Amount[New], q.Amount[Base]}, Samples: [2][]float64{q.Samples[New], q.Samples[Base]}}
			}
			check("swapped sides", Test(swapped, mirrored).Changes, -1)
			slices.Reverse(mirrored)
			backwards := Test(swapped, mirrored).Changes
			slices.Reverse(backwards)
			check("other order", backwards, -1)
		}
	}
}

// Without numbers of samples, only the spread between runs counts.
func TestUncounted(t *testing.T) {
	one := Runs{Exposure: [2][]float64{{1}, {1}}}
	q := Quantity{Amount: [2][]float64{{10}, {1000}}}
	if r := Test(one, []Quantity{q}); one.Possible() || r.Changes[0].Tested || r.Changes[0].Beyond || r.Changes[0].Rate != [2]float64{10, 1000} {
		t.Errorf("one run a side: got %+v, want rates without a test", r.Changes[0])
	}
	three := Runs{Exposure: [2][]float64{{1, 1, 1}, {1, 1, 1}}}
	r := Test(three, []Quantity{
		{Amount: [2][]float64{{10, 11, 9}, {20, 21, 19}}},
		{Amount: [2][]float64{{10, 15, 5}, {12, 17, 7}}},
		{Amount: [2][]float64{{5, 5, 5}, {5, 5, 5}}},
	})
	if !r.Changes[0].Beyond || r.Changes[1].Beyond || r.Changes[2].Beyond {
		t.Errorf("got %+v, want only the first change", r.Changes)
	}
}

// Few samples, all samples and negative amounts are not tested.
func TestUntestable(t *testing.T) {
	r := Runs{Exposure: [2][]float64{{100}, {100}}, Shares: true, Counted: true}
	for what, q := range map[string]Quantity{
		"few":      {Amount: [2][]float64{{0}, {19}}, Samples: [2][]float64{{0}, {19}}},
		"all":      {Amount: [2][]float64{{100}, {100}}, Samples: [2][]float64{{100}, {100}}},
		"none":     {Amount: [2][]float64{{0}, {0}}, Samples: [2][]float64{{0}, {0}}},
		"negative": {Amount: [2][]float64{{-50}, {50}}, Samples: [2][]float64{{50}, {50}}},
	} {
		if c := Test(r, []Quantity{q}).Changes[0]; c.Tested || c.Beyond || c.P != 1 || !math.IsNaN(c.Low) {
			t.Errorf("%s: got %+v, want no test", what, c)
		}
	}
	if c := Test(r, []Quantity{{Amount: [2][]float64{{0}, {40}}, Samples: [2][]float64{{0}, {40}}}}).Changes[0]; !c.Beyond {
		t.Errorf("40 new samples: got %+v, want a change", c)
	}
}

// Holm's method is stricter with each test, and never reorders p-values.
func TestHolm(t *testing.T) {
	tests := []Change{
		{Tested: true, P: 0.04, Low: 1, High: 2}, {Tested: true, P: 0.001, Low: 1, High: 2},
		{P: 1}, {Tested: true, P: 0.02, Low: 1, High: 2}, {Tested: true, P: 0.9, Low: -1, High: 2},
	}
	holm(tests)
	for i, want := range []float64{0.08, 0.004, 0, 0.06, 0.9} {
		if got := tests[i].Corrected; math.Abs(got-want) > 1e-12 {
			t.Errorf("test %d: got %v, want %v", i, got, want)
		}
		if got := tests[i].Beyond; got != (i == 1) {
			t.Errorf("test %d: got beyond noise %v", i, got)
		}
	}
}

// FuzzTest checks that no amounts make numbers that are none, or changes without reason.
func FuzzTest(f *testing.F) {
	f.Add([]byte{1, 1, 30, 40, 50, 60, 0, 255}, true)
	f.Add([]byte{3, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, false)
	f.Fuzz(func(t *testing.T, data []byte, shares bool) {
		if len(data) < 3 {
			return
		}
		runs := Runs{Shares: shares, Counted: data[0]&64 == 0}
		n := [2]int{1 + int(data[0]%4), 1 + int(data[1]%4)}
		data = data[2:]
		next := func() float64 {
			if len(data) == 0 {
				return 0
			}
			v := data[0]
			data = data[1:]
			return math.Ldexp(float64(v%16), int(v/16)*2)
		}
		list := make([]Quantity, min(40, 1+len(data)/(n[0]+n[1])))
		for side := range n {
			for range n[side] {
				sum := 1.0
				for i := range list {
					v := next()
					sum += v
					list[i].Amount[side] = append(list[i].Amount[side], v)
				}
				if !shares {
					sum = 1
				}
				runs.Exposure[side] = append(runs.Exposure[side], sum)
			}
		}
		for i := range list {
			list[i].Samples = list[i].Amount
		}
		r := Test(runs, list)
		for i, c := range r.Changes {
			bad := math.IsNaN(c.P) || c.P < 0 || c.P > 1 || math.IsNaN(c.Corrected) || c.Corrected < c.P || c.Corrected > 1
			bad = bad || c.Tested != !math.IsNaN(c.Low) || c.Tested && !(c.Low <= c.Difference() && c.Difference() <= c.High)
			bad = bad || c.Beyond && (!c.Tested || c.Difference() == 0 || c.Corrected > Alpha)
			if bad {
				t.Fatalf("quantity %d, %+v: got %+v", i, list[i], c)
			}
		}
	})
}
