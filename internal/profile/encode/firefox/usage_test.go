package firefox

import (
	"bytes"
	"math"
	"testing"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/firefox/firefoxtest"
	"fulgur/internal/profile/timeline"
)

// If a wait was missed, the CPU usage of the rest stays as it is: a thread that runs for 0.4 ms
// between waits of 1.6 ms, and is sampled in every other run. After the missed wait, it ran for
// at most an interval.
func TestUsageWithMissedWait(t *testing.T) {
	const start, us = int64(1_000_000_000), int64(time.Microsecond)
	b := profile.NewBuilder()
	stack := b.Push(0, b.Frame(profile.Frame{Function: b.Function(profile.Function{Name: "main"})}))
	p := b.Profile(profile.Meta{}, profile.Losses{})
	r, err := timeline.NewRecorder(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	process := r.Process(42, start)
	main := r.Thread(process, 42, start)
	for i := range int64(10) {
		begin := start + i*2000*us
		if i%2 == 0 {
			if err := r.AddOnCPU(main, profile.OnCPU{Time: begin + 300*us, Stack: stack, Weight: 1000 * us}); err != nil {
				t.Fatal(err)
			}
		}
		if i == 7 {
			continue
		}
		if err := r.AddOffCPU(main, profile.OffCPU{Start: begin + 400*us, Duration: 1600 * us, State: profile.StateSleeping, Stack: stack}); err != nil {
			t.Fatal(err)
		}
	}
	line, err := r.Timeline(p, start+20_000*us, func(s profile.StackID) profile.StackID { return s })
	if err != nil {
		t.Fatal(err)
	}
	line.Interval = 1000 * us
	var out bytes.Buffer
	if err := Write(&out, line, Options{}); err != nil {
		t.Fatal(err)
	}
	used, err := firefoxtest.Check(t, out.Bytes()).Threads[0].Samples.Numbers("threadCPUDelta", math.NaN())
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, ns := range used {
		sum += ns
	}
	if want := 4.0e6; sum != want { // without the 0.3 ms before the first sample
		t.Errorf("got %v ns of CPU usage, want %v: %v", sum, want, used)
	}
}
