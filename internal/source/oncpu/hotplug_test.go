package oncpu

import (
	"os"
	"testing"
	"time"

	"fulgur/internal/perfevent"
	"fulgur/internal/target"
	"fulgur/internal/testenv"
)

// A CPU that goes offline and comes back is sampled again, even if it was away
// for less than the time between two looks.
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
				n += v.Samples
			}
		}
		return n
	}
	settle := func() { time.Sleep(testenv.Patience(200 * time.Millisecond)) }
	follow()
	settle()
	before := onCPU1()
	if before == 0 {
		t.Fatal("CPU 1 was never sampled")
	}

	setOnline(t, "0")
	settle()
	follow()
	if n := h.events.CPUs(); n != 1 {
		t.Errorf("events on %d CPUs, want 1", n)
	}
	setOnline(t, "1")
	settle()
	follow()
	settle()
	between := onCPU1()
	if between <= before {
		t.Errorf("CPU 1 was not sampled after it came back: %d samples, then %d", before, between)
	}

	follow()
	setOnline(t, "0")
	setOnline(t, "1")
	follow()
	settle()
	follow()
	settle()
	if after := onCPU1(); after <= between {
		t.Errorf("CPU 1 was not sampled after a moment away: %d samples, then %d", between, after)
	}
	h.run(t, 0, time.Second)
	if _, err := h.Stats(); err != nil {
		t.Error(err)
	}
}

func setOnline(t *testing.T, online string) {
	t.Helper()
	const file = "/sys/devices/system/cpu/cpu1/online"
	if err := os.WriteFile(file, []byte(online), 0o644); err != nil {
		t.Fatal(err)
	}
	if online == "0" {
		t.Cleanup(func() { _ = os.WriteFile(file, []byte("1"), 0o644) })
	}
}
