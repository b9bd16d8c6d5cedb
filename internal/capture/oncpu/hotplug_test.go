package oncpu

import (
	"runtime"
	"testing"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/testenv"
)

// A CPU that goes offline and comes back is sampled again, even if it was offline only
// between two checks.
func TestHotplug(t *testing.T) {
	testenv.VM(t)
	h := start(t, Options{Options: byCPU, Idle: true},
		target.Target{}, Rate{Frequency: 99})
	follow := func() {
		t.Helper()
		online, err := perfevent.OnlineCPUs()
		if err != nil {
			t.Fatal(err)
		}
		if err := h.FollowCPUs(online); err != nil {
			t.Fatal(err)
		}
	}
	onCPU1 := func() (n uint64) {
		t.Helper()
		h.poll(t)
		if err := h.Counts().Flip(); err != nil {
			t.Fatal(err)
		}
		for key, v := range h.Counts().Total() {
			if key.CPU == 1 {
				n += v.Samples()
			}
		}
		return n
	}
	// sampled waits for a sample on CPU 1, and follows the online CPUs meanwhile.
	sampled := func(when string) {
		t.Helper()
		before := onCPU1()
		testenv.Await(t, func() bool {
			follow()
			return onCPU1() > before
		}, func() string { return "CPU 1 is not sampled " + when })
	}
	sampled("at first")

	testenv.SetOnline(t, false)
	follow()
	if n, want := h.events.CPUs(), runtime.NumCPU()-1; n != want {
		t.Errorf("got events on %d CPUs, want %d", n, want)
	}
	testenv.SetOnline(t, true)
	sampled("after it came back")

	testenv.SetOnline(t, false)
	testenv.SetOnline(t, true)
	sampled("after a moment away")
	h.run(t, 0, time.Second)
	if _, err := h.Stats(); err != nil {
		t.Error(err)
	}
}
