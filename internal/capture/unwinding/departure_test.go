package unwinding

import (
	"testing"
	"time"
)

// A zombie is checked less and less often.
func TestDeparture(t *testing.T) {
	var d departure
	now, looks := uint64(1<<40), 0
	for end := now + uint64(time.Minute); now < end; now += uint64(10 * time.Millisecond) {
		if now >= d.next {
			d = d.later(now)
			looks++
		}
	}
	if looks < 12 || looks > 24 {
		t.Errorf("got %d looks in a minute, want about %d", looks, 6+int(uint64(time.Minute)/maxRestOfDeparture))
	}
	if d.rest != maxRestOfDeparture {
		t.Errorf("got %d ns between looks, want %d", d.rest, maxRestOfDeparture)
	}
}
