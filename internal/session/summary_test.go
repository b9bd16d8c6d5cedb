package session

import (
	"os"
	"testing"

	"fulgur/internal/perfevent"
	"fulgur/internal/target"
)

func TestWhyNothing(t *testing.T) {
	process := target.Target{Scope: target.Processes, PIDs: []int{42}}
	on1 := process
	on1.CPUs = []int{1}
	for _, test := range []struct {
		event   string
		options ProfileOptions
		want    string
	}{
		{"cpu-clock", ProfileOptions{Options: Options{Target: process}, Frequency: 49},
			"the target did not run: it waited all the time, or ran for less than the 20.41ms between two samples"},
		{"cpu-clock", ProfileOptions{Options: Options{Target: on1}, Period: 1e6},
			"the target did not run on the chosen CPUs: it waited all the time, or ran for less than the 1ms between two samples"},
		{"instructions", ProfileOptions{Options: Options{Target: process}, Period: 1000003},
			"the target did not run: it waited all the time, or ran for less than the 1000003 instructions between two samples"},
		{"cpu-clock", ProfileOptions{Frequency: 99},
			"nothing ran, or for less than the 10.1ms between two samples; idle CPUs are left out (-I includes them)"},
		{"cpu-clock", ProfileOptions{Frequency: 99, Idle: true},
			"the measurement was shorter than the 10.1ms between two samples"},
		{"page-faults", ProfileOptions{Options: Options{Target: process}, Frequency: 99},
			"page-faults did not happen, or too seldom for a sample"},
		{"major-faults", ProfileOptions{Options: Options{Target: target.Target{CPUs: []int{0}}}, Period: 1},
			"major-faults did not happen on the chosen CPUs, or too seldom for a sample"},
	} {
		spec, err := perfevent.ParseEvent(test.event)
		if err != nil {
			t.Fatal(err)
		}
		m := &onCPU{options: &test.options, specs: []perfevent.Spec{spec}}
		if got := m.whyNothing(); got != test.want {
			t.Errorf("%s, %+v:\n got %s\nwant %s", test.event, test.options.Target, got, test.want)
		}
	}
}

func TestPeakResident(t *testing.T) {
	for status, want := range map[string]uint64{
		"Name:\tfulgur\nVmHWM:\t   17432 kB\nVmRSS:\t 9 kB\n": 17432 << 10,
		"VmHWM:\t0 kB": 0,
	} {
		if got, err := peakResident([]byte(status)); got != want || err != nil {
			t.Errorf("%q: %d, %v; want %d", status, got, err, want)
		}
	}
	for _, status := range []string{"", "VmRSS:\t9 kB\n", "VmHWM:\n", "VmHWM:\t9 MB\n", "VmHWM:\t-9 kB\n", "VmHWM:\t99999999999999999999 kB\n"} {
		if n, err := peakResident([]byte(status)); err == nil {
			t.Errorf("%q: %d, want an error", status, n)
		}
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := peakResident(own); err != nil || n < 1<<20 {
		t.Errorf("our own: %d, %v", n, err)
	}
}

func FuzzPeakResident(f *testing.F) {
	f.Add([]byte("VmHWM:\t   17432 kB\n"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = peakResident(b) })
}
