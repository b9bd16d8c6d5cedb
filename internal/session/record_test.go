package session

import (
	"strings"
	"testing"

	"fulgur/internal/profile"
)

// The kinds of locks of a recording add up to one value, and have one name.
func TestRecordedLocks(t *testing.T) {
	m := &recording{options: &RecordOptions{Locks: true, NoCPU: true, NoBlockIO: true, NoFaults: true}}
	m.choose(nil)
	kinds := len(m.parts) - 1
	if kinds < 2 {
		t.Fatalf("got %d kinds of locks, want several", kinds)
	}
	values, of := m.Values(nil), 0
	if got, want := m.valueNames(), "samples, off-cpu, locks"; got != want {
		t.Fatalf("got values %q, want %q", got, want)
	}
	for _, each := range values[2].Of {
		of += len(each)
	}
	if of != kinds || len(values[2].Of) != len(m.parts) || len(values[2].Of[0]) != 0 {
		t.Errorf("got locks from %v, want from all of %d parts but the first", values[2].Of, len(m.parts))
	}
	var meta profile.Meta
	m.Describe(&meta)
	if got := strings.Count(meta.Event, "lock contention"); got != 1 {
		t.Errorf("got events %q, want the locks once", meta.Event)
	}
}
