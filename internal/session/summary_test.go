package session

import (
	"bytes"
	"fmt"
	"os"
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
		"process 4 (jit\\x1b[2J) mapped code up to 70000 times a second: 90000 records not followed; its stacks may lack names",
		"process 3 mapped code up to 10001 times a second: 1 record not followed; its stacks may lack names",
	}
	if len(lines) != maxStorms+1 || !slices.Equal(lines[:2], want) || lines[maxStorms] != "2 other processes did so too" {
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
			"the target did not run: it waited all the time, or ran for less than the 20.41ms between two samples"},
		{"cpu-clock", ProfileOptions{Options: Options{Target: on1}, Period: 1e6},
			"the target did not run on the chosen CPUs: it waited all the time, or ran for less than the 1ms between two samples"},
		{"instructions", ProfileOptions{Options: Options{Target: processes}, Period: 1000003},
			"the target did not run: it waited all the time, or ran for less than the 1000003 instructions between two samples"},
		{"cpu-clock", ProfileOptions{Frequency: 99},
			"nothing ran, or for less than the 10.1ms between two samples; idle CPUs are left out (-I includes them)"},
		{"cpu-clock", ProfileOptions{Frequency: 99, Idle: true},
			"the measurement was shorter than the 10.1ms between two samples"},
		{"page-faults", ProfileOptions{Options: Options{Target: processes}, Frequency: 99},
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

// FuzzPeakResident finds the number behind foreign lines.
func FuzzPeakResident(f *testing.F) {
	f.Add([]byte("Name:\tfulgur\nVmPeak:\t 99 kB"), uint32(17432))
	f.Add([]byte("VmHWM:\t   17432 kB\n"), uint32(1))
	f.Fuzz(func(t *testing.T, others []byte, kib uint32) {
		if n, err := peakResident(others); err == nil && (n%1024 != 0 || !bytes.Contains(others, []byte("VmHWM:"))) {
			t.Errorf("%d bytes of %q", n, others)
		}
		if bytes.Contains(others, []byte("VmHWM:")) {
			return // the first one counts
		}
		got, err := peakResident(fmt.Appendf(others, "\nVmHWM:\t%8d kB\n", kib))
		if err != nil || got != uint64(kib)<<10 {
			t.Errorf("%d (%v), want %d KiB", got, err, kib)
		}
	})
}
