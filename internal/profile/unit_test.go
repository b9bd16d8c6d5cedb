package profile

import (
	"math"
	"testing"
)

func TestRounded(t *testing.T) {
	for _, c := range [][3]int64{
		{1499, 1000, 1}, {1500, 1000, 2}, {499, 1000, 0}, {-1499, 1000, -1}, {-1500, 1000, -2}, {7, 1, 7}, {0, 1000, 0},
		{math.MaxInt64, 1000, math.MaxInt64/1000 + 1}, {math.MinInt64, 1, math.MinInt64},
	} {
		if got := Rounded(c[0], c[1]); got != c[2] {
			t.Errorf("Rounded(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

// The printed name of each unit is one that readers know, with the same amount.
func TestPrintedUnit(t *testing.T) {
	for _, unit := range []string{"nanoseconds", "bytes", "count"} {
		name, amount := PrintedUnit(unit)
		if back, n, ok := ParseUnit(name); back != unit || n != amount || !ok {
			t.Errorf("%s is printed as %d %s, which is read as %d %s", unit, amount, name, n, back)
		}
	}
}

// Times and sizes of other tools are in nanoseconds and bytes for those that know only these, unless
// they would not fit.
func TestInBase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		unit, want string
		amount     int64
	}{
		{"microseconds", "nanoseconds", 1000}, {"us", "nanoseconds", 1000}, {"ms", "nanoseconds", 1e6}, {"Seconds", "nanoseconds", 1e9},
		{"kilobytes", "bytes", 1024}, {"By", "bytes", 1}, {"", "count", 1}, {"furlongs", "furlongs", 1},
	} {
		b := NewBuilder(ValueType{Type: "x", Unit: c.unit}, ValueType{Type: "y", Unit: "count"})
		b.Add(Sample{Task: b.Task(Task{Comm: "a"}), CPU: -1, Values: []int64{-3, 5}})
		p := b.Profile(Meta{}, Losses{})
		if q := p.InBase(); q.Total(0) != -3*c.amount || q.Total(1) != 5 || q.ValueTypes[0].Unit != c.want || p.Total(0) != -3 {
			t.Errorf("-3 %s: got %d %s, want %d %s", c.unit, q.Total(0), q.ValueTypes[0].Unit, -3*c.amount, c.want)
		}
		p.Samples[0].Values[0] = math.MinInt64
		if q := p.InBase(); c.amount > 1 && (q.Total(0) != math.MinInt64 || q.ValueTypes[0].Unit != c.unit) {
			t.Errorf("got %d %s for what does not fit", q.Total(0), q.ValueTypes[0].Unit)
		}
	}
}
