package profile

import "math"

// Collector builds a [Profile] whose value types become known as samples come.
// It is not safe for concurrent use.
type Collector struct {
	*Builder
	index map[ValueType]int
	// sums are those of the magnitudes of each value: some sum of samples may be
	// as large.
	sums []uint64
	err  error
}

// NewCollector returns a collector of values of the given types, and of others
// that are met.
func NewCollector(types ...ValueType) *Collector {
	c := &Collector{Builder: NewBuilder(), index: map[ValueType]int{}}
	for _, v := range types { // of a type that is there twice, each is a column
		if i := c.addValue(v); c.err == nil {
			if _, ok := c.index[v]; !ok {
				c.index[v] = i
			}
		}
	}
	return c
}

// Value returns the index of a value type, which is new the first time.
func (c *Collector) Value(v ValueType) int {
	i, ok := c.index[v]
	if !ok {
		i = c.addValue(v)
		if c.err == nil {
			c.index[v] = i
		}
	}
	return i
}

// addValue adds a value type, which every sample gets a place for.
func (c *Collector) addValue(v ValueType) int {
	b := c.Builder
	if n := len(b.p.ValueTypes); n >= MaxValues || !b.left.take(8*len(b.p.Samples)) {
		c.err = errValues
		return 0
	}
	b.names(&v.Type, &v.Unit)
	own(&v.Type, &v.Unit)
	b.p.ValueTypes = append(b.p.ValueTypes, v)
	c.sums = append(c.sums, 0)
	return len(b.p.ValueTypes) - 1
}

// Count adds n to value v of the sample of at's stack, task, CPU and end; at's
// values are not looked at. After an error it does nothing.
func (c *Collector) Count(at Sample, v int, n int64) {
	if c.err != nil {
		return
	}
	magnitude := uint64(n)
	if n < 0 {
		magnitude = -magnitude
	}
	if magnitude > math.MaxInt64-c.sums[v] {
		c.err = errSum
		return
	}
	c.sums[v] += magnitude
	s := &c.p.Samples[c.sample(at)]
	for len(s.Values) <= v {
		s.Values = append(s.Values, 0)
	}
	s.Values[v] += n
}

// Err returns why the samples cannot be counted: values that add up to more than
// an int64 holds, or too many types of them.
func (c *Collector) Err() error { return c.err }

// Profile returns the profile collected so far, with the given description and
// losses. The collector must not be used afterwards.
func (c *Collector) Profile(m Meta, l Losses) *Profile {
	for i := range c.p.Samples {
		s := &c.p.Samples[i]
		for len(s.Values) < len(c.p.ValueTypes) {
			s.Values = append(s.Values, 0)
		}
	}
	return c.Builder.Profile(m, l)
}
