package stacks

import (
	"maps"
	"testing"
	"time"
	"unsafe"

	"fulgur/internal/bpf"
	"fulgur/internal/process"
)

// The sample that a stack record counts has the key and the values that an entry of a count map
// would have.
func TestFirst(t *testing.T) {
	const source = 3
	counts := NewCounts(Maps{}, source, func(Key, Values) (Key, Values) { return Key{}, Values{} })
	r := record(7, nil, []uint64{0x5000})
	if key, value, ok := counts.First(r); ok {
		t.Errorf("got %+v and %v, want no sample", key, value)
	}
	first := &(*bpf.StackRecord)(unsafe.Pointer(&r[0])).First
	first.Tid, first.Cpu, first.Weight = 5, 6, 1e6
	key, value, ok := counts.First(r)
	if want := (Key{Source: source, ID: 7, TID: 5, CPU: 6}); !ok || key != want || value != (Values{1, 1e6}) {
		t.Errorf("got %+v, %v and %v, want %+v and a weight of 1000000", key, value, ok, want)
	}
}

// A sample of an unfinished stack waits for the rest of its trace.
func TestCountFinal(t *testing.T) {
	s := NewStore(fixed{&process.File{}})
	now := time.Unix(0, 0)
	s.now = func() time.Time { return now }
	r := &answers{after: 1}
	s.Readers = only(r)
	give(t, s, record(1, nil, javascript(0x5000)))
	give(t, s, record(2, nil, []uint64{0x5000}))
	value := Values{1, 10}
	for id, want := range map[uint64]bool{1: false, 2: true, 3: false} {
		if got := s.CountFinal(Key{ID: id}, value); got != want {
			t.Errorf("stack %d: got %v, want %v", id, got, want)
		}
	}
	now = now.Add(retryTime)
	s.Count(map[Key]Values{{ID: 1}: value})
	if got, want := s.Samples, map[Sample]Values{{Trace: s.ids[1]}: value, {Trace: s.ids[2]}: value}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := s.shown(t, 1); got[0].name != "f5000" {
		t.Errorf("got %+v, want the function's name", got)
	}
}
