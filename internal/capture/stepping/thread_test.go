package stepping

import (
	"fmt"
	"testing"
	"time"
)

func TestParseState(t *testing.T) {
	const tail = " 1 7 7 0 -1 4194560 9 0 0 0 12 30 0 0 20 0 3 0 2200 1 2 3"
	tests := map[string]struct {
		line string
		want state
		bad  bool
	}{
		"runs":        {line: "7 (cat) R" + tail, want: state{running: true, start: 2200, ran: 420 * time.Millisecond}},
		"sleeps":      {line: "7 (cat) S" + tail, want: state{start: 2200, ran: 420 * time.Millisecond}},
		"forged":      {line: "7 (a) R 1) S" + tail, want: state{start: 2200, ran: 420 * time.Millisecond}},
		"empty":       {bad: true},
		"short":       {line: "7 (cat) R 1 7", bad: true},
		"not numbers": {line: "7 (cat) R 1 7 7 0 -1 4194560 9 0 0 0 x 30 0 0 20 0 3 0 2200 1", bad: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseState([]byte(test.line))
			if (err != nil) != test.bad || got != test.want {
				t.Errorf("got %+v, %v; want %+v, error: %v", got, err, test.want, test.bad)
			}
		})
	}
}

// FuzzParseState reads foreign bytes, and a valid line whose name they are.
func FuzzParseState(f *testing.F) {
	f.Add([]byte("7 (cat) R 1 7 7 0 -1 4194560 9 0 0 0 12 30 0 0 20 0 3 0 2200 1 2 3"), uint32(12), uint32(30), uint32(2200))
	f.Fuzz(func(t *testing.T, b []byte, user, system, start uint32) {
		if s, err := parseState(b); err == nil && s.ran < 0 {
			t.Errorf("%q: ran for %v", b, s.ran)
		}
		line := fmt.Appendf(nil, "7 (%s) R 1 7 7 0 -1 4194560 9 0 0 0 %d %d 0 0 20 0 3 0 %d 1", b, user, system, start)
		want := state{running: true, start: uint64(start), ran: time.Duration(uint64(user)+uint64(system)) * tick}
		if got, err := parseState(line); err != nil || got != want {
			t.Errorf("%+v (%v), want %+v", got, err, want)
		}
	})
}

func TestBudget(t *testing.T) {
	th := thread{ran: time.Second, wait: 150 * time.Millisecond}
	th.observe(state{ran: 3 * time.Second}, 0.1)
	if got := th.saved; got != 200*time.Millisecond {
		t.Errorf("saved %v in 2 s, want 200ms", got)
	}
	th.charge(150*time.Millisecond, 10*time.Millisecond)
	if got := th.saved; got != 50*time.Millisecond {
		t.Errorf("saved %v after a burst, want 50ms", got)
	}
	if th.wait < 10*time.Millisecond || th.wait > 20*time.Millisecond {
		t.Errorf("waits for %v, want 10 to 20 ms", th.wait)
	}
	th.wait = 20 * time.Millisecond
	th.observe(state{ran: 2 * time.Second}, 0.1) // a clock of ticks may lag
	if got := th.saved; got > 50*time.Millisecond {
		t.Errorf("saved %v, want 50ms at most", got)
	}
	if got := th.slowdown(); got != 0.075 {
		t.Errorf("slowdown %v, want 0.075", got)
	}
	// A minute that the stepper did not come by is not made up for.
	th.observe(state{ran: time.Minute}, 0.1)
	if got := th.saved; got != 2*th.wait {
		t.Errorf("saved %v in a minute, want two bursts' %v", got, 2*th.wait)
	}
	th.charge(0, 0) // a stop that came to nothing
	if th.wait < leastWait {
		t.Errorf("waits for %v, want %v at least", th.wait, leastWait)
	}
}
