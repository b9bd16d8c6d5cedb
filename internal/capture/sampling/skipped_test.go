package sampling

import "testing"

// The time since the last sample is not a skipped sample, even if it is longer than the period of the
// previous rate.
func TestSkippedByRate(t *testing.T) {
	const ms = 1_000_000
	e := &Events{closed: map[int]closedEvents{0: {events: 1, count: 1000*50*ms + 30*ms}}}
	runs, periods := []uint64{1000}, []uint64{1000 * 50 * ms}
	if err := e.Mark(runs, periods, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		more, want uint64 // time since the third sample of 333 ms, in ms
	}{{300, 0}, {332, 0}, {334 + 300, 1}, {3*334 + 1, 3}} {
		e.closed[0] = closedEvents{events: 1, count: 1000*50*ms + 30*ms + 3*333*ms + c.more*ms}
		got, err := e.Skipped([]uint64{1003}, []uint64{1000*50*ms + 3*333*ms}, nil)
		if err != nil || got != c.want {
			t.Errorf("%d ms after the last sample: got %d skipped, %v; want %d", c.more, got, err, c.want)
		}
	}
	e = &Events{closed: map[int]closedEvents{0: {events: 1, count: 1000*50*ms + 520*ms}}}
	if err := e.Mark(runs, periods, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := e.Skipped([]uint64{1000}, periods, nil); err != nil || got != 9 {
		t.Errorf("after the change: got %d skipped, %v; want the 9 from before it", got, err)
	}
}
