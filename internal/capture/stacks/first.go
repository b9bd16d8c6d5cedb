package stacks

import (
	"unsafe"

	"fulgur/internal/bpf"
)

// TimeOf returns the time of a valid stack record, in ns of CLOCK_MONOTONIC.
func TimeOf(record []byte) uint64 {
	return field[uint64](record, unsafe.Offsetof(bpf.StackRecord{}.Time))
}

// First returns the sample that a valid stack record of the probe counts, or false if it counts
// none; see struct stack_count in bpf/record.h.
func (c *Counts) First(record []byte) (_ Key, _ Values, ok bool) {
	var r bpf.StackRecord // only for its layout
	at := unsafe.Offsetof(r.First)
	weight := field[uint64](record, at+unsafe.Offsetof(r.First.Weight))
	if weight == 0 {
		return Key{}, Values{}, false
	}
	return Key{
		Source: c.source,
		ID:     field[uint64](record, unsafe.Offsetof(r.Id)),
		TID:    field[uint32](record, at+unsafe.Offsetof(r.First.Tid)),
		CPU:    field[uint32](record, at+unsafe.Offsetof(r.First.Cpu)),
	}, Values{1, weight}, true
}

// CountFinal adds a value to [Store.Samples]. If the trace of the key may still change or has not
// arrived, it adds nothing and returns false, and the caller must leave the value to [Store.Count].
func (s *Store) CountFinal(key Key, value Values) bool {
	if _, unfinished := s.retries[key.ID]; unfinished {
		return false
	}
	sample, ok := s.Sample(key)
	if ok {
		s.CountSample(sample, value)
	}
	return ok
}
