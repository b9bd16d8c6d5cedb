package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// example is a comparison in which some aims are met, some are not and some
// cannot be judged.
func example() *comparison {
	system, process, churn := scenario{Frequency: 4999}, scenario{OnePID: true, Frequency: 99}, scenario{Churn: true, Frequency: agentFrequency}
	return &comparison{
		Machine: "a machine",
		Seconds: 5,
		Growth:  30,
		Notes:   []string{"bpftrace is left out: not found"},
		Results: []result{
			{system, nameFulgur, []cost{
				{Samples: 49990, CPU: 0.1, Start: 0.02, Result: 0.1, RSS: 30 << 20, Maps: 8 << 20, BPF: 0.05, Runs: 50000},
				{Round: 1, Samples: 49000, Lost: 3, CPU: 0.3, Start: 0.03, Result: 0.3, RSS: 50 << 20, Maps: 8 << 20, BPF: 0.06, Runs: 50000},
				{Round: 2, Samples: 49980, CPU: 0.2, Start: 0.04, Result: 0.2, RSS: 35 << 20, Maps: 8 << 20, BPF: 0.07, Runs: 50000},
			}},
			{system, namePerf, []cost{{Samples: 50000, CPU: 0.25, CPUAfter: 2, Start: 0.2, Result: 3, RSS: 70 << 20}}},
			{system, nameBCC, []cost{
				{Samples: 44000, Stackless: 2000, CPU: 0.1, Start: 0.1, Result: 0.4, RSS: 14 << 20, Maps: 2 << 20, BPF: 0.05, Runs: 50000},
				{Round: 2, Samples: 44000, CPU: 0.1, Start: 0.1, Result: 0.4, RSS: 14 << 20, Maps: 2 << 20, BPF: 0.10, Runs: 50000},
			}},
			{system, "bpftrace", nil},
			{churn, nameTables, []cost{{Samples: 495, CPU: 0.9, StartCPU: 0.2, EndCPU: 0.3, Steady: 0.02, Running: 0.024, RSS: 40 << 20, Anonymous: 18 << 20, Maps: 9 << 20, BPF: 0.001, Runs: 495}}},
			{churn, nameAgent, []cost{{Samples: 855, CPU: 0.9, StartCPU: 0.3, EndCPU: 0.1, Steady: 0.0085, RSS: 40 << 20, Anonymous: 18 << 20, Maps: 9 << 20, BPF: 0.045, BPFShare: 0.001, Runs: 855}}},
			{churn, namePerf, []cost{{Samples: 495, CPU: 0.2, CPUAfter: 0.1, Steady: 0.03, Running: 0.036, RSS: 24 << 20, Anonymous: 9 << 20}}},
			{process, nameFulgur, []cost{{Samples: 495, CPU: 0.1, Start: 0.12, Result: 0.1, RSS: 12 << 20, Maps: 8 << 20, BPF: 0.001, Runs: 495}}},
			{process, namePerf, []cost{{Samples: 495, CPU: 0.2, CPUAfter: 0.1, Start: 0.2, Result: 0.3, RSS: 24 << 20}}},
		},
		Long:         &cost{RSS: 36 << 20, Maps: 8 << 20},
		LongScenario: system,
	}
}

func TestReport(t *testing.T) {
	var got bytes.Buffer
	if err := example().write(&got); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "report.md")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("report differs (-want +got):\n%s", diff)
	}
}

func TestMedian(t *testing.T) {
	got := median([]cost{
		{Samples: 3, Lost: 0, CPU: 0.5, RSS: 7},
		{Samples: 1, Lost: 9, CPU: 0.1, RSS: 9},
		{Samples: 2, Lost: 1, CPU: 0.9, RSS: 8},
	})
	if want := (cost{Samples: 2, Lost: 9, CPU: 0.5, RSS: 8}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestGrowth(t *testing.T) {
	short := cost{RSS: 100 << 20, Maps: 8 << 20}
	tests := []struct {
		long cost
		met  bool
	}{
		{cost{RSS: 90 << 20, Maps: 8 << 20}, true},
		{cost{RSS: 109 << 20, Maps: 8 << 20}, true},
		{cost{RSS: 111 << 20, Maps: 8 << 20}, false},
		{cost{RSS: 100 << 20, Maps: 9 << 20}, false},
	}
	for _, tt := range tests {
		if got := growth(short, tt.long); got.met != tt.met {
			t.Errorf("%+v: got %v, want it met: %t", tt.long, got, tt.met)
		}
	}
}

// A tool that failed in a round has no ratio in it.
func TestRatioByRound(t *testing.T) {
	o := outcomes{
		nameFulgur: {{CPU: 1}, {Round: 1, CPU: 9}, {Round: 2, CPU: 3}, {Round: 3, CPU: 4}},
		namePerf:   {{CPU: 2}, {Round: 2, CPU: 2}, {Round: 3, CPU: 4}, {Round: 4, CPU: 1}},
	}
	got, known := ratio(o, nameFulgur, namePerf, func(c cost) float64 { return c.CPU })
	if want := (spread{1, 0.5, 1.5, 3}); !known || got != want {
		t.Errorf("got %v, %t; want %v", got, known, want)
	}
	if _, known := ratio(o, nameFulgur, nameBCC, func(c cost) float64 { return c.CPU }); known {
		t.Error("there is a ratio to a tool that did not run")
	}
}
