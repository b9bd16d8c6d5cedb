package oncpu

import (
	"errors"
	"strings"
	"testing"

	"fulgur/internal/capture/source"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/message/usage"
)

func TestCompleteRate(t *testing.T) {
	m := New(Config{})
	if err := m.Complete(source.Common{}); err != nil || m.Frequency != DefaultFrequency || m.Period != 0 {
		t.Errorf("got frequency %d and period %d (%v), want %d and 0", m.Frequency, m.Period, err, DefaultFrequency)
	}
	m = New(Config{Period: 1000003})
	if err := m.Complete(source.Common{}); err != nil || m.Frequency != 0 || m.Period != 1000003 {
		t.Errorf("got frequency %d and period %d (%v), want 0 and 1000003", m.Frequency, m.Period, err)
	}
}

func TestSpecs(t *testing.T) {
	m := New(Config{Event: "cpu-clock"})
	if err := m.Complete(source.Common{}); err != nil || len(m.Specs) != 1 || m.Specs[0].Name != "cpu-clock" || !m.Specs[0].IsTime() {
		t.Errorf("cpu-clock: got %+v, %v; want the clock alone", m.Specs, err)
	}
	m = New(Config{Event: "no-such-event"})
	if err := m.Complete(source.Common{}); !errors.Is(err, usage.Err) || !strings.Contains(err.Error(), "no-such-event") {
		t.Errorf("no-such-event: got %v; want a usage error that names it", err)
	}
}

// A recording names the value of its samples unless that is CPU time.
func TestTimelineOfEvents(t *testing.T) {
	for event, want := range map[string]string{"cycles": "cycles", "page-faults": "page-faults", "cpu-clock": ""} {
		m := New(Config{Event: event, Frequency: 100})
		if err := m.Complete(source.Common{}); err != nil {
			t.Fatal(err)
		}
		if line, ok := m.Times(); !ok || line.Sampled.Type != want || line.Interval != 1e7 {
			t.Errorf("%s: got %+v, %v; want samples of %q each 10 ms", event, line, ok, want)
		}
	}
}

func TestWhyNothing(t *testing.T) {
	processes := target.Target{Scope: target.Processes, PIDs: []int{42}}
	on1 := processes
	on1.CPUs = []int{1}
	for _, test := range []struct {
		event  string
		target target.Target
		config Config
		want   string
	}{
		{"cpu-clock", processes, Config{Frequency: 49},
			"the target did not run: it only waited, or ran for less than the 20.41ms between two samples"},
		{"cpu-clock", on1, Config{Period: 1e6},
			"the target did not run on the chosen CPUs: it only waited, or ran for less than the 1ms between two samples"},
		{"instructions", processes, Config{Period: 1000003},
			"the target did not run: it only waited, or ran for less than the 1000003 instructions between two samples"},
		{"cpu-clock", target.Target{}, Config{Frequency: 99},
			"nothing ran, or only for less than the 10.1ms between two samples; samples of idle CPUs are left out (the option for idle CPUs includes them)"},
		{"cpu-clock", target.Target{}, Config{Frequency: 99, Idle: true},
			"the measurement was shorter than the 10.1ms between two samples"},
		{"page-faults", processes, Config{Frequency: 99},
			"page-faults did not occur, or too rarely for a sample"},
		{"major-faults", target.Target{CPUs: []int{0}}, Config{Period: 1},
			"major-faults did not occur on the chosen CPUs, or too rarely for a sample"},
	} {
		spec, err := perfevent.ParseEvent(test.event)
		if err != nil {
			t.Fatal(err)
		}
		m := New(test.config)
		m.Specs, m.common.Target = []perfevent.Spec{spec}, &test.target
		if got := m.WhyNothing(); got != test.want {
			t.Errorf("%s, %+v: got %s, want %s", test.event, test.target, got, test.want)
		}
	}
}
