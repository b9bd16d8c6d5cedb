package hits

import (
	"errors"
	"testing"
	"unsafe"

	"fulgur/internal/capture/events"
	"fulgur/internal/linux/ringbuf"
)

// Malformed records are refused.
func TestMalformedEvents(t *testing.T) {
	s := &Source{markers: markers{probe: &events.Probe{Points: make([]events.Point, 1)}}}
	e := Event{Cookie: 1 << 32}
	record := unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e))
	for name, b := range map[string][]byte{"short": record[:eventSize-1], "unknown point": record[:eventSize]} {
		if err := s.Event(b, nil); !errors.Is(err, ringbuf.ErrRecord) {
			t.Errorf("%s: got error %v, want %v", name, err, ringbuf.ErrRecord)
		}
	}
}

// The texts of a record belong to the fields that have one, in order.
func TestValuesOfEvent(t *testing.T) {
	e := &Event{Texts: ^uint32(0)}
	for i := range e.Text {
		*(*byte)(unsafe.Pointer(&e.Text[i])) = byte('a' + i)
	}
	e.Numbers[0] = 5
	got := values(e, make([]events.Shown, len(e.Text)))
	if got[0] != "a" || got[len(got)-1] != string(rune('a'+len(got)-1)) {
		t.Errorf("got %q, want the texts", got)
	}
	e.Texts = 0b10
	if got := values(e, make([]events.Shown, 2)); got[0] != "5" || got[1] != "a" {
		t.Errorf("got %q, want 5 and a", got)
	}
}
