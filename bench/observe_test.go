package main

import (
	"math"
	"path/filepath"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

func TestObserve(t *testing.T) {
	got, err := observe(t.Context(), []string{"sh", "-c", "echo said >&2; sleep 0.1"}, nil, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got.ended <= got.started || got.rss == 0 || got.stderr != "said\n" {
		t.Errorf("got %+v, want a time, memory and standard error", got)
	}
	if got, err := observe(t.Context(), []string{"sh", "-c", "echo why >&2; exit 3"}, nil, nil, 0); err == nil {
		t.Errorf("a failed program: got %+v, want an error", got)
	}
}

// The CPU time has the three parts of a run: its start, its steady state, its end.
func TestObservedCost(t *testing.T) {
	at := func(seconds float64, ms int) used {
		return used{time.Duration(seconds * float64(time.Second)), time.Duration(ms) * time.Millisecond}
	}
	o := observed{
		started: 10 * time.Second, firstRun: 11 * time.Second, cpu: 1000 * time.Millisecond,
		used: []used{at(10.5, 100), at(11, 200), at(12, 300), at(14, 350), at(15, 400), at(16, 410), at(16.5, 900)},
	}
	if got := o.cost(5); got.StartCPU != 0.2 || got.EndCPU != 0.59 || math.Abs(got.Steady-0.1/3) > 1e-9 || math.Abs(got.Running-0.16) > 1e-9 {
		t.Errorf("got %+v, want 0.2 s for the start, 0.59 s for the end, a thirtieth of a CPU between, and 0.16 s per second after the start", got)
	}
	if got := o.cost(2); got.Steady != 0 {
		t.Errorf("a run of 2 s has a steady state: %+v", got)
	}
}

func TestParseFdinfo(t *testing.T) {
	const text = "pos:\t0\nmap_type:\t1\nmemlock:\t4096\nmap_id:\t17\nflags:\t0x0\nprog_tag:\tab12\n"
	got := parseFdinfo(text)
	if got["memlock"] != 4096 || got["map_id"] != 17 {
		t.Errorf("got %v", got)
	}
	if _, ok := got["prog_tag"]; ok {
		t.Errorf("got %v: prog_tag is no number", got)
	}
}

func TestPerf(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "perf")
	busy := testenv.Command(t, testenv.Tool(t, "sh"), "-c", "while :; do :; done") // until the test ends
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	tool, err := perf()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	got, err := tool.run(t.Context(), job{
		scenario: scenario{OnePID: true, Frequency: 99}, seconds: 1, pid: busy.Process.Pid, dir: dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Samples == 0 || got.CPU == 0 || got.Start <= 0 || got.Result <= 0 || got.RSS == 0 {
		t.Errorf("got %+v, want all but losses and BPF", got)
	}
	if written, err := filepath.Glob(filepath.Join(dir, "stacks")); err != nil || len(written) != 1 {
		t.Errorf("no stacks were written: %v", err)
	}
}
