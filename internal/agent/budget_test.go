package agent

import (
	"testing"
	"time"

	"fulgur/internal/capture/sampling"
	"fulgur/internal/session"
)

// budget is 1 % of the CPUs and 100 bytes.
var budget = Budget{CPU: 0.01, Memory: 100}

// TestNextCPU checks single decisions.
func TestNextCPU(t *testing.T) {
	const window = 10 * time.Second
	for name, c := range map[string]struct {
		before state
		use    float64
		want   state
	}{
		"within":           {state{credit: time.Minute}, 0.005, state{credit: 65 * time.Second}},
		"full credit":      {state{credit: maxCredit}, 0, state{credit: maxCredit}},
		"a burst":          {state{credit: maxCredit}, 0.2, state{credit: maxCredit - 190*time.Second}},
		"a step down":      {state{credit: 5 * time.Second}, 0.02, state{step: 1, credit: stepTime}}, // -5 s
		"at once":          {state{credit: maxCredit}, 1, state{step: 1, credit: stepTime}},
		"at the last step": {state{step: 4}, 0.05, state{step: 4}},
		"not yet up":       {state{step: 2, credit: maxCredit - window}, 0.0001, state{step: 2, credit: maxCredit - 100*time.Millisecond}},
		"a step up":        {state{step: 2, credit: maxCredit - window}, 0, state{step: 1, credit: maxCredit}},
		"up from the last": {state{step: 4, credit: maxCredit}, 0, state{step: 3, credit: maxCredit}},
	} {
		got := c.before.next(budget, consumed{elapsed: window, cpu: c.use})
		c.want.calm = window
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	if got := (state{step: 3}).next(Budget{}, consumed{elapsed: window, cpu: 1}); got != (state{credit: maxCredit}) {
		t.Errorf("without a budget: got %+v", got)
	}
}

// TestNextMemory checks single decisions.
func TestNextMemory(t *testing.T) {
	const window = 10 * time.Second
	for name, c := range map[string]struct {
		before state
		memory uint64
		want   state
	}{
		"within":         {state{}, 80, state{}},
		"above":          {state{calm: time.Hour}, 101, state{shed: shedCaches}},
		"above again":    {state{shed: shedCaches}, 101, state{shed: shedCaches, above: window}},
		"above for long": {state{shed: shedCaches, above: stepTime - window}, 101, state{shed: shedNames}},
		"no more left":   {state{shed: shedNames, above: stepTime}, 101, state{shed: shedNames, above: stepTime + window}},
		"below again":    {state{shed: shedCaches, above: stepTime}, 100, state{shed: shedCaches}},
		"just below":     {state{shed: shedNames, calm: time.Hour}, 80, state{shed: shedNames}},
		"not for long":   {state{shed: shedNames}, 70, state{shed: shedNames, calm: window}},
		"calm":           {state{shed: shedNames, calm: calmTime}, 70, state{shed: shedCaches}},
		"calm again":     {state{shed: shedCaches, calm: calmTime}, 70, state{}},
	} {
		got := c.before.next(budget, consumed{elapsed: window, memory: c.memory})
		if c.want.credit = window; got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	if got := (state{shed: shedNames}).next(Budget{}, consumed{elapsed: time.Minute, memory: 1000}); got.shed != shedNothing {
		t.Errorf("without a budget: got %+v", got)
	}
}

// TestGovern lets the cost depend on the rate, and checks the average and that the state
// settles: it changes rarely, and returns when the machine is quiet.
func TestGovern(t *testing.T) {
	const window = 10 * time.Second
	for name, c := range map[string]struct {
		base, each float64 // CPU time of a window, fixed and by Hz
		highest    uint64  // rates that it settles at
		lowest     uint64
	}{
		"cheap":     {0.001, 0.0001, 19, 19},
		"at half":   {0.002, 0.0006, 19, 9}, // 1.34 % at 19 Hz, 0.74 % at 9 Hz
		"at floor":  {0.002, 0.0025, 5, 3},  // 1.45 % at 5 Hz, 0.95 % at 3 Hz
		"too dear":  {0.1, 0, 3, 3},
		"no budget": {0.1, 0.01, 19, 19},
	} {
		b := budget
		if name == "no budget" {
			b.CPU = 0
		}
		s := state{credit: maxCredit}
		rate := func() uint64 { return sampling.Rate{Frequency: 19}.Reduced(s.limits().Reduction).Frequency }
		changes, total := 0, 0.0
		const hours = 12
		for i := range hours * 360 {
			use := c.base + c.each*float64(rate())
			before := s.step
			s = s.next(b, consumed{elapsed: window, cpu: use})
			total += use
			if i < 360 {
				continue // until it has settled
			}
			if s.step != before {
				changes++
			}
			if r := rate(); r > c.highest || r < c.lowest {
				t.Fatalf("%s: got %d Hz after %d windows, want from %d to %d", name, r, i, c.lowest, c.highest)
			}
		}
		if average := total / (hours * 360); b.CPU > 0 && c.base < b.CPU && average > 1.1*b.CPU {
			t.Errorf("%s: got an average of %.4f", name, average)
		}
		if changes > 6*hours {
			t.Errorf("%s: got %d changes in %d hours", name, changes, hours)
		}
		for range 360 {
			s = s.next(b, consumed{elapsed: window})
		}
		if l := s.limits(); l != (session.Limits{}) {
			t.Errorf("%s: got %+v after a quiet hour, want no limits", name, l)
		}
	}
}
