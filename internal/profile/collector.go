package profile

// Collector builds a [Profile] whose value types become known as samples come.
// It is not safe for concurrent use.
type Collector struct {
	*Builder
	types   []ValueType
	index   map[sampleKey]int
	samples []Sample
}

// NewCollector returns a collector of values of the given types, and of others
// that are met.
func NewCollector(types ...ValueType) *Collector {
	return &Collector{Builder: NewBuilder(), types: types, index: map[sampleKey]int{}}
}

// Value returns the index of a value type, which is new the first time.
func (c *Collector) Value(v ValueType) int {
	for i, known := range c.types {
		if known == v {
			return i
		}
	}
	c.types = append(c.types, v)
	return len(c.types) - 1
}

// Count adds n to value v of the sample of at's stack, task, CPU and end; at's
// values are not looked at.
func (c *Collector) Count(at Sample, v int, n int64) {
	key := sampleKey{at.Stack, at.Task, at.CPU, at.End}
	i, ok := c.index[key]
	if !ok {
		i = len(c.samples)
		c.index[key] = i
		at.Values = nil
		c.samples = append(c.samples, at)
	}
	s := &c.samples[i]
	for len(s.Values) <= v {
		s.Values = append(s.Values, 0)
	}
	s.Values[v] += n
}

// Profile returns the profile collected so far, with the given description and
// losses. The collector must not be used afterwards.
func (c *Collector) Profile(m Meta, l Losses) *Profile {
	p := c.Builder.Profile(m, l)
	p.ValueTypes, p.Samples = c.types, c.samples
	for i := range p.Samples {
		for len(p.Samples[i].Values) < len(c.types) {
			p.Samples[i].Values = append(p.Samples[i].Values, 0)
		}
	}
	return p
}
