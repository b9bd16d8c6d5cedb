package profile

import (
	"math"
	"slices"
)

// units are the units that text files and users state, by name, with the unit of
// [ValueType] and its amount.
var units = map[string]struct {
	unit   string
	amount int64
}{
	"count": {"count", 1},
	"bytes": {"bytes", 1},
	"ns":    {"nanoseconds", 1}, "nanoseconds": {"nanoseconds", 1},
	"us": {"nanoseconds", 1e3}, "microseconds": {"nanoseconds", 1e3},
	"ms": {"nanoseconds", 1e6}, "milliseconds": {"nanoseconds", 1e6},
	"s": {"nanoseconds", 1e9}, "seconds": {"nanoseconds", 1e9},
}

// ParseUnit returns the unit of [ValueType] for the name of a unit, such as "us" or
// "bytes", and its amount in that unit: "nanoseconds" and 1000.
func ParseUnit(name string) (unit string, amount int64, ok bool) {
	u, ok := units[name]
	return u.unit, u.amount, ok
}

// PrintedUnit returns the unit in which text formats print values of a unit of
// [ValueType], and its amount in that unit. Times are in microseconds, as in the output of
// bcc's tools (github.com/iovisor/bcc, tools/offcputime.py).
func PrintedUnit(unit string) (name string, amount int64) {
	if unit == "nanoseconds" {
		return "microseconds", 1e3
	}
	return unit, 1
}

// Rounded returns n divided by amount, which is positive, rounded to the nearest integer.
func Rounded(n, amount int64) int64 {
	whole, rest := n/amount, n%amount
	switch {
	case rest >= amount-rest && rest > 0:
		return whole + 1
	case -rest >= amount+rest && rest < 0:
		return whole - 1
	}
	return whole
}

// Stated returns a copy of p, whose only value has no unit, with a unit that [ParseUnit]
// knows: times are values of type "time", bytes of type "bytes". It returns an error if
// the values, which are not negative, add up to more than an int64.
func (p *Profile) Stated(name string) (*Profile, error) {
	unit, amount, _ := ParseUnit(name)
	v := ValueType{Type: unit, Unit: unit}
	switch unit {
	case "count":
		return p, nil
	case "nanoseconds":
		v.Type = "time"
	}
	if p.Total(0) > math.MaxInt64/amount {
		return nil, errSum
	}
	stated := *p
	stated.ValueTypes = []ValueType{v}
	stated.Samples = slices.Clone(p.Samples)
	for i := range stated.Samples {
		s := &stated.Samples[i]
		s.Values = []int64{s.Values[0] * amount}
	}
	return &stated, nil
}
