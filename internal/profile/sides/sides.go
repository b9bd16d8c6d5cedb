// Package sides compares the two sides of a profile of intervals, such as requests: the slow ones and
// the others.
package sides

import (
	"math"
	"slices"

	"fulgur/internal/profile"
)

// The values of a profile with two sides: the numbers of intervals, and the sum of the times of each
// side.
var (
	Intervals     = profile.ValueType{Type: "intervals", Unit: "count"}
	SlowIntervals = profile.ValueType{Type: "slow intervals", Unit: "count"}
	Others        = profile.ValueType{Type: "others", Unit: "nanoseconds"}
	Slow          = profile.ValueType{Type: "slow", Unit: "nanoseconds"}
)

// Notes on top of stacks, besides the reasons of waits.
const (
	// Running is on top of the stack at the beginning of intervals whose running code has no sample.
	Running = "[running]"
	// Runnable marks the time from a wake-up until the thread ran.
	Runnable = "[runnable]"
	// Unkept marks waits without room for their stacks, on top of the stack at the beginning.
	Unkept = "[wait not kept]"
)

// Sides are the two sides of a profile.
type Sides struct {
	// Slow and Others have a single value, the time of an average interval of the side.
	Slow, Others *profile.Profile
	// SlowIntervals and OtherIntervals are the numbers of intervals.
	SlowIntervals, OtherIntervals int64
}

// indexes are the indexes of the values.
type indexes struct{ all, slow, others, time int }

func find(p *profile.Profile) (i indexes, ok bool) {
	at := func(t profile.ValueType) int { return slices.Index(p.ValueTypes, t) }
	i = indexes{at(Intervals), at(SlowIntervals), at(Others), at(Slow)}
	return i, min(i.all, i.slow, i.others, i.time) >= 0
}

// Of returns the sides of a profile, or false if it has none.
func Of(p *profile.Profile) (s Sides, ok bool) {
	i, ok := find(p)
	if !ok {
		return s, false
	}
	s.SlowIntervals = p.Total(i.slow)
	s.OtherIntervals = p.Total(i.all) - s.SlowIntervals
	s.Slow, s.Others = p.Only(i.time), p.Only(i.others)
	for _, p := range []*profile.Profile{s.Slow, s.Others} {
		p.ValueTypes = []profile.ValueType{{Type: "time of an interval", Unit: "nanoseconds"}}
		p.Meta.Value = p.ValueTypes[0].Type
	}
	scale(s.Slow, 0, 1, s.SlowIntervals)
	scale(s.Others, 0, 1, s.OtherIntervals)
	return s, true
}

// Base returns what to compare the time of slow intervals with: the time of the others, as if they were
// as many. The other values are equal to those of p. It returns false if p does not have intervals on both
// sides.
func Base(p *profile.Profile) (*profile.Profile, bool) {
	i, ok := find(p)
	if !ok {
		return nil, false
	}
	slow := p.Total(i.slow)
	others := p.Total(i.all) - slow
	if slow <= 0 || others <= 0 {
		return nil, false
	}
	base := *p
	base.Samples = slices.Clone(p.Samples)
	for n := range base.Samples {
		values := slices.Clone(base.Samples[n].Values)
		values[i.time] = values[i.others]
		base.Samples[n].Values = values
	}
	scale(&base, i.time, slow, others)
	return &base, true
}

// scale multiplies value v of p by of / whole. It rounds the running sum, so that the total is right.
func scale(p *profile.Profile, v int, of, whole int64) {
	if whole <= 0 {
		p.Samples = nil
		return
	}
	sum, before := 0.0, int64(0)
	for _, s := range p.Samples {
		sum += float64(s.Values[v])
		now := int64(math.Round(sum * float64(of) / float64(whole)))
		s.Values[v], before = now-before, now
	}
}
