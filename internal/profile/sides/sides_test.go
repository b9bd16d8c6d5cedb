package sides

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"fulgur/internal/profile"
)

// made returns a profile of both sides with random values, and numbers of intervals.
func made(random *rand.Rand, slow, others int64) *profile.Profile {
	b := profile.NewBuilder(Intervals, SlowIntervals, Others, Slow)
	add := func(name string, values ...int64) {
		f := b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: name})})
		b.Add(profile.Sample{Stack: b.Push(0, f), CPU: -1, Values: values})
	}
	add("begin", slow+others, slow, 0, 0)
	for i := range 50 {
		add(string(rune('a'+i)), 0, 0, random.Int64N(1e12), random.Int64N(1e12))
	}
	return b.Profile(profile.Meta{}, profile.Losses{})
}

// The sum of each side is that of an average interval, and no stack is off by more than rounding.
func TestOf(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		slow, others := 1+random.Int64N(1000), 1+random.Int64N(1_000_000)
		p := made(random, slow, others)
		s, ok := Of(p)
		if !ok || s.SlowIntervals != slow || s.OtherIntervals != others {
			t.Fatalf("got %d and %d intervals, want %d and %d", s.SlowIntervals, s.OtherIntervals, slow, others)
		}
		for _, side := range []struct {
			got *profile.Profile
			of  int
			n   int64
		}{{s.Slow, 3, slow}, {s.Others, 2, others}} {
			if got, want := float64(side.got.Total(0)), float64(p.Total(side.of))/float64(side.n); math.Abs(got-want) > 0.5 {
				t.Errorf("got an average of %v, want %v", got, want)
			}
		}
	}
}

// The base differs in the time of slow intervals alone. That is the time of the others, for as many.
func TestBase(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		slow, others := 1+random.Int64N(1000), 1+random.Int64N(1_000_000)
		p := made(random, slow, others)
		before := p.Total(3)
		base, ok := Base(p)
		if !ok || !slices.Equal(base.ValueTypes, p.ValueTypes) {
			t.Fatalf("got %v with values %v", ok, base.ValueTypes)
		}
		if p.Total(3) != before {
			t.Error("the profile has changed")
		}
		for i := range 3 {
			if base.Total(i) != p.Total(i) {
				t.Errorf("value %d: got %d, want %d", i, base.Total(i), p.Total(i))
			}
		}
		if got, want := float64(base.Total(3)), float64(p.Total(2))*float64(slow)/float64(others); math.Abs(got-want) > 1+want*1e-9 {
			t.Errorf("got %v, want %v", got, want)
		}
		for i, s := range base.Samples {
			if want := float64(p.Samples[i].Values[2]) * float64(slow) / float64(others); math.Abs(float64(s.Values[3])-want) > 1+want*1e-6 {
				t.Errorf("got %d, want %v", s.Values[3], want)
			}
		}
	}
}

// Other profiles have no sides, and nothing is compared with a side without intervals.
func TestNoSides(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	if _, ok := Of(profile.NewBuilder(Intervals, Slow).Profile(profile.Meta{}, profile.Losses{})); ok {
		t.Error("got sides of a profile without them")
	}
	for _, n := range [][2]int64{{0, 1}, {1, 0}, {0, 0}} {
		p := made(random, n[0], n[1])
		if _, ok := Base(p); ok {
			t.Errorf("got a base of %d and %d intervals", n[0], n[1])
		}
		s, ok := Of(p)
		if !ok || n[0] == 0 && s.Slow.Total(0) != 0 || n[1] == 0 && s.Others.Total(0) != 0 {
			t.Errorf("got times of no intervals: %d and %d", s.Slow.Total(0), s.Others.Total(0))
		}
	}
}
