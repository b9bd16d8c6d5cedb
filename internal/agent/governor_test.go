package agent

import (
	"testing"
	"time"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
	"fulgur/internal/session"
)

// TestSince computes what was used between two readings of 10 s, on two CPUs.
func TestSince(t *testing.T) {
	at := time.Now()
	ran := func(d time.Duration) procfs.BPF { return procfs.BPF{RunTime: d, Memory: 30} }
	for name, c := range map[string]struct {
		before, after reading
		samples       uint64
		reduction     uint64
		cpu           float64
	}{
		"estimated":           {reading{self: time.Second}, reading{self: 3 * time.Second}, 1_000_000 / 15, 0, 0.15},
		"with switches":       {reading{switches: 1}, reading{switches: 1_000_001}, 0, 0, 0.1},
		"fewer waits":         {reading{switches: 1}, reading{switches: 1_000_001}, 0, 8, 0.034375},
		"first with switches": {reading{}, reading{switches: 1_000_000}, 0, 0, 0},
		"measured":            {reading{bpf: ran(time.Second)}, reading{bpf: ran(2 * time.Second), measured: true, self: time.Second}, 1_000_000, 0, 0.1},
		"loaded again":        {reading{bpf: ran(time.Minute)}, reading{bpf: ran(time.Second), measured: true}, 1_000_000, 0, 0.05},
	} {
		c.before.at, c.after.at, c.after.resident, c.after.bpf.Memory = at, at.Add(10*time.Second), 12, 30
		got := c.after.since(c.before, 2, c.samples, c.reduction)
		if d := got.cpu - c.cpu; d < -1e-4 || d > 1e-4 || got.elapsed != 10*time.Second || got.memory != 42 {
			t.Errorf("%s: got %+v, want a CPU share of %v, 10s and 42 bytes", name, got, c.cpu)
		}
	}
	if u := (reading{at: at}).since(reading{at: at}, 0, 1, 0); u.cpu != 0 {
		t.Errorf("without time: got %+v", u)
	}
}

// The memory of BPF programs and maps is read again only after a while.
func TestReadBPF(t *testing.T) {
	none := session.RecordOptions{NoOffCPU: true}
	known := procfs.BPF{Memory: 1<<50 + 1}
	if procfs.BPFStatistics() {
		t.Log("the kernel measures BPF programs, so that each reading counts")
	} else if got := read(none, reading{bpf: known, bpfAt: time.Now()}); got.bpf != known {
		t.Errorf("right after a reading: got %+v, want the same as then", got.bpf)
	}
	began := time.Now()
	if got := read(none, reading{bpf: known, bpfAt: began.Add(-readBPFEvery)}); got.bpf == known || got.bpfAt.Before(began) {
		t.Errorf("later: got %+v as of %s, want a new reading", got.bpf, got.bpfAt)
	}
}

// TestDescribe describes changes only.
func TestDescribe(t *testing.T) {
	o := Options{Budget: Budget{CPU: 0.01, Memory: 128 << 20}, Measure: session.RecordOptions{Frequency: 19, NoOffCPU: true}}
	waits := o
	waits.Measure.NoOffCPU = false
	u := consumed{cpu: 0.0153, memory: 140 << 20}
	for _, c := range []struct {
		old, now state
		want     string
	}{
		{state{}, state{credit: time.Minute}, ""},
		{state{}, state{step: 1}, "above the limit of 1 % of the CPUs (1.53 %): sampling at 9 Hz"},
		{state{step: 3}, state{step: 4}, "above the limit of 1 % of the CPUs (1.53 %): sampling at 3 Hz, without looking up more functions"},
		{state{}, state{shed: shedCaches}, "above the limit of 128.0 MiB (140.0 MiB): sampling at 19 Hz, with small caches"},
		{state{step: 1}, state{}, "within the budget again (1.53 % of the CPUs, 140.0 MiB): sampling at 19 Hz"},
		{state{step: 4}, state{step: 4, shed: shedNames}, "above the limit of 128.0 MiB (140.0 MiB): sampling at 3 Hz, with small caches, without looking up more functions"},
	} {
		if got := describe(c.old, c.now, o, u); got != c.want {
			t.Errorf("from %+v to %+v: got %q, want %q", c.old, c.now, got, c.want)
		}
	}
	if got, want := describe(state{step: 1}, state{step: 2}, waits, u), "above the limit of 1 % of the CPUs (1.53 %): sampling at 5 Hz, measuring one in 4 waits"; got != want {
		t.Errorf("with waits: got %q, want %q", got, want)
	}
}

// Go gets what is left of a limit of 128 MiB, but always has room to grow.
func TestHeapLimit(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct{ others, fixed, live, want uint64 }{
		"small":               {40 * mib, 8 * mib, 10 * mib, 88 * mib},
		"nearly at the limit": {60 * mib, 8 * mib, 50 * mib, 83 * mib},
		"above the limit":     {200 * mib, 8 * mib, 20 * mib, 38 * mib},
		"hardly used":         {200 * mib, 2 * mib, 2 * mib, minHeap},
	} {
		if got := heapLimit(128*mib, c.others, c.fixed, c.live); got != c.want {
			t.Errorf("%s: got %d MiB, want %d", name, got/mib, c.want/mib)
		}
	}
}

// Waits do not count as CPU samples, whose cost is estimated.
func TestSamplesOfCPUs(t *testing.T) {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	b.Add(profile.Sample{CPU: -1, Values: []int64{1000 + 190, 10e9}})
	if got := samplesOfCPUs(b.Profile(profile.Meta{Frequency: 19}, profile.Losses{})); got != 190 {
		t.Errorf("got %d samples, want 190", got)
	}
}
