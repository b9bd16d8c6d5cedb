package recording_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/recording"
	"fulgur/internal/profile/timeline/timelinetest"
)

// The states in slices are those that a look at each microsecond finds.
func TestStates(t *testing.T) {
	line := timelinetest.Busy(t, rand.New(rand.NewPCG(9, 9))) //nolint:gosec // reproducible
	const count, step = 7, int64(20 * time.Microsecond)
	list, waits, err := recording.StatesOf(line, count)
	if err != nil || !waits || len(list) != 3 {
		t.Fatalf("got %d threads, waits %v, %v", len(list), waits, err)
	}
	for _, s := range list {
		var want [3][count]int64
		look := func(state int, from, to int64) {
			for at := from + step/2; at < to; at += step {
				if slice := (at - line.Start) * count / (line.End - line.Start); at >= line.Start && slice < count {
					want[state][slice] += step
				}
			}
		}
		for e := range line.Events.OnCPU(s.Thread) {
			look(0, e.Time-e.Weight, e.Time)
		}
		for e := range line.Events.OffCPU(s.Thread) {
			if e.State == profile.StateRunnable {
				look(1, e.Start, e.Start+e.Duration)
			} else {
				look(2, e.Start, e.Start+e.Duration)
			}
		}
		for i, got := range [][]int64{s.Running, s.Runnable, s.Waiting} {
			for slice, n := range got {
				if d := n - want[i][slice]; d < -int64(time.Millisecond) || d > int64(time.Millisecond) {
					t.Errorf("thread %d, state %d: got %d ns in slice %d, want %d", s.Thread, i, n, slice, want[i][slice])
				}
			}
		}
	}
}

// A wait whose end is known to be spent without a CPU is runnable then. No slice has more time than it lasts.
func TestStatesOfWoken(t *testing.T) {
	const ms = int64(time.Millisecond)
	line := timelinetest.Recording(t) // of 100 ms
	list, _, err := recording.StatesOf(line, 100)
	if err != nil {
		t.Fatal(err)
	}
	main := list[0]
	// It waited from 5.5 to 25.500001 ms, the last 1000 ns of it ready to run, and was preempted for 0.3 ms from 27 ms on.
	if got := recording.Total(main.Waiting); got != 20*ms+1-1000 {
		t.Errorf("got %d ns of waiting", got)
	}
	if got := recording.Total(main.Runnable); got != 1000+300_000 || main.Runnable[25] != 1000 || main.Runnable[27] != 300_000 {
		t.Errorf("got %d ns ready to run, %v", got, main.Runnable)
	}
	for i := range main.Running {
		if sum := main.Running[i] + main.Runnable[i] + main.Waiting[i]; sum > ms {
			t.Errorf("slice %d has %d ns of 1 ms", i, sum)
		}
	}
}
