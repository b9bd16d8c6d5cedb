package session

import (
	"slices"
	"testing"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/process"
)

// The summary names who mapped more than could be followed, whatever it calls itself.
func TestStormLines(t *testing.T) {
	storms := []process.Storm{
		{PID: 4, Comm: "jit\x1b[2J", Skipped: 90000, PerSecond: 70000}, {PID: 3, Skipped: 1, PerSecond: 10001},
		{PID: 2, Skipped: 1}, {PID: 1, Skipped: 1}, {PID: 5, Skipped: 1},
	}
	lines := stormLines(storms)
	want := []string{
		"process 4 (jit\\x1b[2J) mapped code up to 70000 times a second: 90000 records ignored; its stacks may lack names",
		"process 3 mapped code up to 10001 times a second: 1 record ignored; its stacks may lack names",
	}
	if len(lines) != maxStorms+1 || !slices.Equal(lines[:2], want) || lines[maxStorms] != "2 other processes did the same" {
		t.Errorf("%q", lines)
	}
	if lines := stormLines(nil); len(lines) > 0 {
		t.Errorf("%q of none", lines)
	}
}

func TestWhyNothing(t *testing.T) {
	processes := target.Target{Scope: target.Processes, PIDs: []int{42}}
	on1 := processes
	on1.CPUs = []int{1}
	for _, test := range []struct {
		event   string
		options ProfileOptions
		want    string
	}{
		{"cpu-clock", ProfileOptions{Options: Options{Target: processes}, Frequency: 49},
			"the target did not run: it only waited, or ran for less than the 20.41ms between two samples"},
		{"cpu-clock", ProfileOptions{Options: Options{Target: on1}, Period: 1e6},
			"the target did not run on the chosen CPUs: it only waited, or ran for less than the 1ms between two samples"},
		{"instructions", ProfileOptions{Options: Options{Target: processes}, Period: 1000003},
			"the target did not run: it only waited, or ran for less than the 1000003 instructions between two samples"},
		{"cpu-clock", ProfileOptions{Frequency: 99},
			"nothing ran, or for less than the 10.1ms between two samples; samples of idle CPUs are left out (-I includes them)"},
		{"cpu-clock", ProfileOptions{Frequency: 99, Idle: true},
			"the measurement was shorter than the 10.1ms between two samples"},
		{"page-faults", ProfileOptions{Options: Options{Target: processes}, Frequency: 99},
			"page-faults did not occur, or too rarely for a sample"},
		{"major-faults", ProfileOptions{Options: Options{Target: target.Target{CPUs: []int{0}}}, Period: 1},
			"major-faults did not occur on the chosen CPUs, or too rarely for a sample"},
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
