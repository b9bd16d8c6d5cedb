package profile

import (
	"math"
	"slices"
	"strings"
)

// Collector builds a [Profile] whose value types are not known in advance. It is not safe
// for concurrent use.
type Collector struct {
	*Builder
	index map[ValueType]int
	// sums holds the sum of magnitudes of each value, which bounds every sum of samples.
	sums []uint64
	err  error
	// events are the events whose samples were counted, in the order of their first ones.
	events []eventValues
}

// eventValues are the indexes of an event's values: the number of its samples, and the sum of their
// periods, -1 if there is none.
type eventValues struct {
	of             ValueType
	counts, amount int
}

// NewCollector returns a collector for values of the given types. More types can follow.
func NewCollector(types ...ValueType) *Collector {
	c := &Collector{Builder: NewBuilder(), index: map[ValueType]int{}}
	for _, v := range types { // a type that occurs twice has two columns
		if i := c.addValue(v); c.err == nil {
			if _, ok := c.index[v]; !ok {
				c.index[v] = i
			}
		}
	}
	return c
}

// Value returns the index of a value type, adding it if it is new.
func (c *Collector) Value(v ValueType) int {
	c.names(&v.Type, &v.Unit)
	i, ok := c.index[v]
	if !ok {
		i = c.addValue(v)
		if c.err == nil {
			c.index[v] = i
		}
	}
	return i
}

// addValue adds a value type, and a value to every sample.
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

// Count adds n to value v of the sample with at's stack, task, CPU and end. It ignores
// at's values. After an error it has no effect.
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

// samples is the value that counts the samples of the only event.
var samples = ValueType{Type: "samples", Unit: "count"}

// CountEvent adds a sample of an event to the sample with at's stack, task, CPU and end. period is
// what it stands for in the event's unit, 0 if unknown. Samples of different events are unlike, so
// each event has its own number of samples, and its own sum of periods.
func (c *Collector) CountEvent(at Sample, event ValueType, period int64) {
	i := slices.IndexFunc(c.events, func(e eventValues) bool { return e.of == event })
	if i < 0 {
		made := eventValues{of: event, amount: -1}
		if len(c.events) == 0 {
			made.counts = c.Value(samples)
		} else {
			made.counts = c.addValue(event.samples())
		}
		i = len(c.events)
		c.events = append(c.events, made)
	}
	e := &c.events[i]
	c.Count(at, e.counts, 1)
	if period > 0 {
		if e.amount < 0 {
			e.amount = c.Value(event)
		}
		c.Count(at, e.amount, period)
	}
}

// NameEvents gives each event the name that short returns for it, unless two events would have the
// same one: these keep their names, as cycles:u and cycles:k do.
func (c *Collector) NameEvents(short func(name string) string) {
	of := map[string]int{}
	for _, e := range c.events {
		of[short(e.of.Type)]++
	}
	for i := range c.events {
		e := &c.events[i]
		name := short(e.of.Type)
		if of[name] > 1 || e.amount == e.counts {
			continue
		}
		own(&name)
		e.of.Type = name
		if e.amount >= 0 {
			c.p.ValueTypes[e.amount].Type = name
		}
		if i > 0 {
			c.p.ValueTypes[e.counts] = e.of.samples()
		}
	}
}

// samples returns the value that counts the samples of one of several events.
func (v ValueType) samples() ValueType {
	return ValueType{Type: v.Type + " samples", Unit: samples.Unit}
}

// Events returns the names of the events of a profile that has several, see [Collector.CountEvent].
func (p *Profile) Events() (names []string) {
	for _, v := range p.ValueTypes {
		if name, ok := strings.CutSuffix(v.Type, " samples"); ok && v == (ValueType{Type: name}).samples() {
			names = append(names, name)
		}
	}
	return names
}

// Err returns the error of a value that overflowed an int64, or of too many value types.
func (c *Collector) Err() error { return c.err }

// Profile returns the profile collected so far, with the given metadata and losses. The
// collector must not be used afterwards.
func (c *Collector) Profile(m Meta, l Losses) *Profile {
	if len(c.events) > 1 {
		first := c.events[0]
		c.p.ValueTypes[first.counts] = first.of.samples()
	}
	for i := range c.p.Samples {
		s := &c.p.Samples[i]
		for len(s.Values) < len(c.p.ValueTypes) {
			s.Values = append(s.Values, 0)
		}
	}
	return c.Builder.Profile(m, l)
}
