package slow

import (
	"errors"
	"math/rand/v2"
	"testing"

	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile/encode/histogram"
	"fulgur/internal/testenv"
)

// At most the share of the times is slow, unless the last slot alone has more. A lower threshold would have
// more.
func TestThreshold(t *testing.T) {
	testenv.AnyKernel(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var times histogram.Times
		low := uint64(1)
		for range 1 + random.IntN(20) {
			high := low + random.Uint64N(low)
			times.Slots = append(times.Slots, histogram.Slot{Low: low, High: high, Count: 1 + random.Uint64N(1000)})
			low = high + 1 + random.Uint64N(10)
		}
		share := 0.001 + 0.5*random.Float64()
		from, ok := threshold(times, share)
		n := float64(times.Count())
		if ok != (n*share >= fewest) {
			t.Fatalf("%v of %v: got a threshold: %t", share, n, ok)
		}
		if !ok {
			continue
		}
		slow, before := uint64(0), uint64(0) // before is the slot below the threshold
		for _, s := range times.Slots {
			if s.Low >= from {
				slow += s.Count
			} else {
				before = s.Count
			}
		}
		last := times.Slots[len(times.Slots)-1]
		if float64(slow) > n*share && from != last.Low {
			t.Errorf("%v of %v: %d are slow", share, n, slow)
		}
		if float64(slow+before) <= n*share && before > 0 {
			t.Errorf("%v of %v: only %d are slow, though %d more would be", share, n, slow, before)
		}
	}
}

// Dividing the running time changes no sum, and leaves that of processes without samples.
func TestDivide(t *testing.T) {
	testenv.AnyKernel(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		store := &stacks.Store{Samples: map[stacks.Sample]stacks.Values{}}
		for pid := range uint32(4) {
			for range 5 {
				store.Traces = append(store.Traces, stacks.Trace{PID: pid})
			}
		}
		for range 100 {
			s := stacks.Sample{Source: uint8(random.IntN(2)), Trace: stacks.TraceID(random.IntN(len(store.Traces)))}
			kind := []uint64{latency.Running, latency.Sample, latency.Wait, latency.Woken}[random.IntN(4)]
			if kind == latency.Sample && store.Traces[s.Trace].PID == 0 {
				continue
			}
			s.Detail = kind | uint64(random.IntN(2))*latency.Slow
			v := stacks.Values{latency.Intervals: 1 + random.Uint64N(5), latency.Time: random.Uint64() >> (8 + random.IntN(50))}
			if kind == latency.Sample {
				v[latency.Time] = 0
			}
			store.Samples[s] = v
		}
		// A side of a process, or a wait.
		type group struct {
			ran
			source uint8
			wait   uint64
		}
		sums := func() (times map[group]uint64, counts uint64) {
			times = map[group]uint64{}
			for s, v := range store.Samples {
				g := group{ran{pid: store.Traces[s.Trace].PID, slow: s.Detail&latency.Slow != 0}, s.Source, 0}
				if kind := s.Detail &^ latency.Slow; kind != latency.Running && kind != latency.Sample {
					g.wait = kind
				}
				times[g] += v[latency.Time]
				counts += v[latency.Intervals]
			}
			return times, counts
		}
		before, counts := sums()
		sampled := map[group]bool{}
		for s := range store.Samples {
			if s.Detail&^latency.Slow == latency.Sample {
				sampled[group{ran{pid: store.Traces[s.Trace].PID, slow: s.Detail&latency.Slow != 0}, s.Source, 0}] = true
			}
		}
		divide(store, 1)
		after, same := sums()
		if counts != same {
			t.Errorf("got %d occurrences, want %d", same, counts)
		}
		for g, want := range before {
			if after[g] != want {
				t.Errorf("%+v: got %d, want %d", g, after[g], want)
			}
		}
		for s, v := range store.Samples {
			g := group{ran{pid: store.Traces[s.Trace].PID, slow: s.Detail&latency.Slow != 0}, s.Source, 0}
			if s.Source == 1 && s.Detail&^latency.Slow == latency.Running && sampled[g] && v[latency.Time] != 0 {
				t.Errorf("%+v has samples, but keeps %d ns", g, v[latency.Time])
			}
		}
	}
}

// Exactly one option says which intervals are slow.
func TestCheck(t *testing.T) {
	testenv.AnyKernel(t)
	one := latency.Config{Events: []string{"syscalls:sys_enter_read"}}
	for name, test := range map[string]struct {
		config Config
		ok     bool
	}{
		"none":        {Config{Config: one}, false},
		"over":        {Config{Config: one, Over: 1}, true},
		"share":       {Config{Config: one, Slowest: 0.01}, true},
		"all":         {Config{Config: one, Slowest: 1}, false},
		"between":     {Config{Config: one, Between: &Bounds{1, 2}}, true},
		"reversed":    {Config{Config: one, Between: &Bounds{2, 1}}, false},
		"two":         {Config{Config: one, Over: 1, Slowest: 0.01}, false},
		"many rows":   {Config{Config: one, Over: 1, Rows: latency.MaxRows + 1}, false},
		"two events":  {Config{Config: latency.Config{Events: []string{"a:b", "a:c"}}, Over: 1}, false},
		"by a field":  {Config{Config: latency.Config{Events: []string{"a:b"}, Key: "arg0"}, Over: 1}, false},
		"same thread": {Config{Config: latency.Config{Events: []string{"a:b"}, Key: "tid"}, Over: 1}, true},
	} {
		err := test.config.check()
		if (err == nil) != test.ok || err != nil && !errors.Is(err, usage.Err) {
			t.Errorf("%s: got error %v, want one: %t", name, err, !test.ok)
		}
	}
}
