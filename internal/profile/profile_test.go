package profile

import "testing"

// The name of each loss is its own.
func TestLossNames(t *testing.T) {
	seen := map[string]Loss{}
	for l := Loss(0); l < NumLosses; l++ {
		if other, ok := seen[l.String()]; ok || l.String() == "" {
			t.Errorf("losses %d and %d have the name %q", other, l, l)
		}
		seen[l.String()] = l
	}
}

// Elapsed time is a part of the CPU time, which was sampled.
func TestPeriodOfElapsedTime(t *testing.T) {
	cpu := ValueType{Type: "cpu", Unit: "nanoseconds"}
	p := NewBuilder(ValueType{Type: "samples", Unit: "count"}, cpu, ElapsedTime).Profile(Meta{Frequency: 50}, Losses{})
	if every, ok := p.Sampled(); !ok || every != (Interval{Of: cpu, Amount: 1e9 / 50}) || p.Weight() != 2 {
		t.Errorf("got %+v %t, and value %d first; want 20 ms of CPU time, and elapsed time first", every, ok, p.Weight())
	}
}

// Off-CPU time has no period, even if the profile also has samples.
func TestPeriodOfWaits(t *testing.T) {
	cpu := ValueType{Type: "cpu", Unit: "nanoseconds"}
	for name, c := range map[string]struct {
		values []ValueType
		shown  string
		want   int64
	}{
		"samples":          {[]ValueType{cpu}, "", 1e9 / 50},
		"both, CPU first":  {[]ValueType{cpu, OffCPUTime}, "cpu", 1e9 / 50},
		"both, waits last": {[]ValueType{cpu, OffCPUTime}, "", 0},
	} {
		p := NewBuilder(c.values...).Profile(Meta{Frequency: 50, Value: c.shown}, Losses{})
		if got := p.Period(); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}
