package jumps

import (
	"testing"
	"time"
)

// FallBack lets breakpoints count all jumps from now on.
func (c *Counter) FallBack(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fallBack(why)
}

// Groups become smaller after long stalls. If even the smallest groups stall threads, breakpoints
// replace uprobes, unless the user has chosen these.
func TestAdapt(t *testing.T) {
	const long, short = 20 * time.Millisecond, time.Millisecond
	for name, test := range map[string]struct {
		probes Probes
		stalls []time.Duration
		group  int
		falls  bool
	}{
		"short":           {Any, []time.Duration{short, short}, largestGroup, false},
		"smaller":         {Any, []time.Duration{long, long}, largestGroup / 4, false},
		"smallest":        {Any, []time.Duration{long, long, long, long}, smallestGroup, false},
		"too long":        {Any, []time.Duration{long, long, long, long, long, long, long}, smallestGroup, true},
		"rarely too long": {Any, []time.Duration{long, long, long, long, long, short, short, long, short, long, short, short, long}, smallestGroup, false},
		"chosen":          {Uprobes, []time.Duration{long, long, long, long, long, long, long, long}, smallestGroup, false},
	} {
		c := &Counter{o: Options{Probes: test.probes, MaxStall: 10 * time.Millisecond}, group: largestGroup, breakpoints: &breakpoints{}}
		for _, stall := range test.stalls {
			c.adapt(stall)
		}
		if falls := c.stats.Fallback != ""; c.group != test.group || falls != test.falls {
			t.Errorf("%s: got group %d, fallback %q, want %d, %t", name, c.group, c.stats.Fallback, test.group, test.falls)
		}
	}
}
