package profile

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// nanoseconds and bytes are the units of [ValueType] for times and sizes.
const (
	nanoseconds = "nanoseconds"
	bytes       = "bytes"
)

// units are the names of units that files and users state, in lower case and without a plural s,
// with the unit of [ValueType] and the amount in it. Files of other tools have those of pprof and
// of UCUM, which OpenTelemetry uses.
var units = map[string]struct {
	unit   string
	amount int64
}{
	"count": {"count", 1}, "1": {"count", 1}, "{count}": {"count", 1}, "{sample}": {"count", 1},

	"b": {bytes, 1}, "by": {bytes, 1}, "byte": {bytes, 1},
	"kb": {bytes, 1 << 10}, "kbyte": {bytes, 1 << 10}, "kilobyte": {bytes, 1 << 10}, "kib": {bytes, 1 << 10}, "kiby": {bytes, 1 << 10},
	"mb": {bytes, 1 << 20}, "mbyte": {bytes, 1 << 20}, "megabyte": {bytes, 1 << 20}, "mib": {bytes, 1 << 20}, "miby": {bytes, 1 << 20},
	"gb": {bytes, 1 << 30}, "gbyte": {bytes, 1 << 30}, "gigabyte": {bytes, 1 << 30}, "gib": {bytes, 1 << 30}, "giby": {bytes, 1 << 30},

	"ns": {nanoseconds, 1}, "nanosecond": {nanoseconds, 1},
	"us": {nanoseconds, 1e3}, "µs": {nanoseconds, 1e3}, "μs": {nanoseconds, 1e3}, "microsecond": {nanoseconds, 1e3},
	"ms": {nanoseconds, 1e6}, "millisecond": {nanoseconds, 1e6},
	"s": {nanoseconds, 1e9}, "sec": {nanoseconds, 1e9}, "second": {nanoseconds, 1e9},
	"min": {nanoseconds, 60e9}, "minute": {nanoseconds, 60e9},
	"h": {nanoseconds, 3600e9}, "hr": {nanoseconds, 3600e9}, "hour": {nanoseconds, 3600e9},
}

// ParseUnit returns the unit of [ValueType] for the name of a unit, such as "us" or
// "bytes", and its amount in that unit: "nanoseconds" and 1000.
func ParseUnit(name string) (unit string, amount int64, ok bool) {
	name = strings.ToLower(name)
	u, ok := units[name]
	if !ok && len(name) > 3 { // "ns" is no plural
		u, ok = units[strings.TrimSuffix(name, "s")]
	}
	return u.unit, u.amount, ok
}

// InBase returns p with times in nanoseconds and sizes in bytes, which is what most of fulgur
// knows. Values whose sum would not fit into an int64 keep their unit. It shares the tables.
func (p *Profile) InBase() *Profile {
	q := *p
	q.ValueTypes = slices.Clone(p.ValueTypes)
	amounts, scaled := make([]int64, len(p.ValueTypes)), false
	for v, typ := range p.ValueTypes {
		unit, amount, ok := ParseUnit(typ.Unit)
		if typ.Unit == "" {
			unit, amount, ok = "count", 1, true
		}
		amounts[v] = 1
		if !ok || amount > 1 && p.magnitude(v) > math.MaxInt64/uint64(amount) {
			continue
		}
		q.ValueTypes[v].Unit, amounts[v] = unit, amount
		scaled = scaled || amount > 1
	}
	if !scaled {
		return &q
	}
	q.Samples = slices.Clone(p.Samples)
	for i := range q.Samples {
		s := &q.Samples[i]
		s.Values = slices.Clone(s.Values)
		for v, amount := range amounts {
			s.Values[v] *= amount
		}
	}
	return &q
}

// magnitude returns the sum of the absolute amounts of value i, at most [math.MaxUint64].
func (p *Profile) magnitude(i int) (sum uint64) {
	for _, s := range p.Samples {
		n := uint64(s.Values[i])
		if s.Values[i] < 0 {
			n = -n
		}
		if sum += n; sum < n {
			return math.MaxUint64
		}
	}
	return sum
}

// Magnitude returns the sum of the absolute amounts of value i, at most [math.MaxInt64]. It differs
// from [Profile.Total] if amounts are negative, as in comparisons that pprof writes.
func (p *Profile) Magnitude(i int) int64 { return int64(min(p.magnitude(i), math.MaxInt64)) }

// HasNegative reports whether value i is negative in a sample.
func (p *Profile) HasNegative(i int) bool {
	return slices.ContainsFunc(p.Samples, func(s Sample) bool { return s.Values[i] < 0 })
}

// IsCPUTime reports whether v is time on a CPU: it has the name that fulgur and Go give it, or
// one of perf's.
func (v ValueType) IsCPUTime() bool {
	return v.Unit == nanoseconds && (v.Type == "cpu" || v.Type == "cpu-clock" || v.Type == "task-clock")
}

// ValueNames returns names of the values that differ from each other: their types or, for a type
// that occurs again, the type with a number, "samples.2".
func (p *Profile) ValueNames() []string {
	names, seen := make([]string, len(p.ValueTypes)), map[string]bool{}
	for i, v := range p.ValueTypes {
		names[i] = v.Type
		for n := 2; seen[names[i]]; n++ {
			names[i] = v.Type + "." + strconv.Itoa(n)
		}
		seen[names[i]] = true
	}
	return names
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
