package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/own"
	"fulgur/internal/profile/sides"
)

// SlowRule is the name of the rule that compares slow intervals with the others.
const SlowRule = "slow"

// slowReasons is the maximum number of reasons in the sentence about slow intervals.
const slowReasons = 3

// What threads do, besides waiting for other reasons.
const (
	running       = "running"
	waitingForCPU = "waiting for a CPU"
)

// excess is how much longer slow intervals do something than the others.
type excess struct {
	doing string // phrase without the function
	// functions are the times by function of a program, "" for none.
	functions map[string]int64
	sum       int64 // ns
}

// slow says what slow intervals do longer than the others, on average.
func slow(f *facts) (Finding, bool) {
	s, ok := sides.Of(f.Profile)
	if !ok || s.SlowIntervals == 0 {
		return Finding{}, false
	}
	took, other := s.Slow.Total(0), s.Others.Total(0)
	numbers := map[string]float64{
		"intervals": float64(s.SlowIntervals + s.OtherIntervals), "slow_intervals": float64(s.SlowIntervals),
		"slow_seconds": float64(took) / 1e9, "other_seconds": float64(other) / 1e9,
	}
	ns := func(n int64) string { return describe.Quantity(n, "nanoseconds") }
	sentence := fmt.Sprintf("%s of %d %s slow, and took %s on average", plural(uint64(s.SlowIntervals), "1 interval", "# intervals"),
		s.SlowIntervals+s.OtherIntervals, plural(uint64(s.SlowIntervals), "was", "were"), ns(took))
	longer := took
	if s.OtherIntervals > 0 {
		longer -= other
		sentence += fmt.Sprintf(", %s longer than the others", ns(longer))
	}
	var parts []string
	for _, e := range f.excesses(s) {
		if len(parts) == slowReasons || float64(e.sum) < 0.05*float64(longer) || e.sum <= 0 {
			break
		}
		in := ""
		if function, n := largest(e.functions); function != "" && n > e.sum/2 {
			in = " in " + named(function)
		}
		parts = append(parts, ns(e.sum)+" "+e.doing+in)
		switch e.doing {
		case running:
			numbers["running_longer_seconds"] = float64(e.sum) / 1e9
		case waitingForCPU:
			numbers["runnable_longer_seconds"] = float64(e.sum) / 1e9
		default:
			numbers["waiting_longer_seconds"] += float64(e.sum) / 1e9
		}
	}
	if len(parts) > 0 && longer > 0 {
		sentence += ": " + strings.Join(parts, ", ")
	}
	return Finding{Numbers: numbers, marked: sentence + "."}, true
}

// excesses returns what slow intervals do longer than the others, the most first.
func (f *facts) excesses(s sides.Sides) []*excess {
	inner, all := own.Innermost(f.Profile).Frames, map[string]*excess{}
	add := func(p *profile.Profile, sign int64) {
		for _, sample := range p.Samples {
			doing := f.doing(sample.Stack)
			e := all[doing]
			if e == nil {
				e = &excess{doing: doing, functions: map[string]int64{}}
				all[doing] = e
			}
			name := ""
			if id := inner[f.waiters[sample.Stack]]; id != 0 {
				name = f.GroupName(id)
			}
			e.sum += sign * sample.Values[0]
			e.functions[name] += sign * sample.Values[0]
		}
	}
	add(s.Slow, 1)
	add(s.Others, -1)
	return slices.SortedFunc(maps.Values(all), func(a, b *excess) int {
		return cmp.Or(cmp.Compare(b.sum, a.sum), cmp.Compare(a.doing, b.doing))
	})
}

// doing says what a thread with a stack does, by the note on top.
func (f *facts) doing(stack profile.StackID) string {
	leaf := f.leaf(stack)
	if leaf == 0 || f.Frames[leaf].Kind != profile.KindMarker {
		return running
	}
	switch note := f.FrameName(leaf); note {
	case sides.Running:
		return running
	case sides.Runnable, "[preempted]", "[yield]":
		return waitingForCPU
	default:
		return "waiting (" + named(note) + ")"
	}
}

// largest returns the name with the largest amount.
func largest(amounts map[string]int64) (name string, n int64) {
	return most(func(add func(string, int64)) {
		for name, n := range amounts {
			add(name, n)
		}
	})
}
