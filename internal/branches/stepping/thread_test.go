package stepping

import (
	"testing"
	"time"
)

func TestBudget(t *testing.T) {
	th := thread{ran: time.Second, wait: 150 * time.Millisecond}
	th.observe(state{ran: 3 * time.Second}, 0.1)
	if got := th.saved; got != 200*time.Millisecond {
		t.Errorf("got %v saved in 2 s, want 200ms", got)
	}
	th.charge(150*time.Millisecond, 10*time.Millisecond)
	if got := th.saved; got != 50*time.Millisecond {
		t.Errorf("got %v saved after a burst, want 50ms", got)
	}
	if th.wait < 10*time.Millisecond || th.wait > 20*time.Millisecond {
		t.Errorf("got wait %v, want 10 to 20 ms", th.wait)
	}
	th.wait = 20 * time.Millisecond
	th.observe(state{ran: 2 * time.Second}, 0.1) // a tick-based clock may lag
	if got := th.saved; got > 50*time.Millisecond {
		t.Errorf("got %v saved, want at most 50ms", got)
	}
	if got := th.slowdown(); got != 0.075 {
		t.Errorf("got slowdown %v, want 0.075", got)
	}
	// A late stepper does not make up for the missed time.
	th.observe(state{ran: time.Minute}, 0.1)
	if got := th.saved; got != 2*th.wait {
		t.Errorf("got %v saved in a minute, want two bursts' %v", got, 2*th.wait)
	}
	th.charge(0, 0) // a stop without steps
	if th.wait < minWait {
		t.Errorf("got wait %v, want at least %v", th.wait, minWait)
	}
}
