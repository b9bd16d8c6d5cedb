package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"fulgur/internal/testenv"
)

func TestObserve(t *testing.T) {
	got, err := observe(t.Context(), []string{"sh", "-c", "echo said >&2; sleep 0.1"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.ended <= got.started || got.rss == 0 || got.stderr != "said\n" {
		t.Errorf("got %+v, want a time, memory and standard error", got)
	}
	if got, err := observe(t.Context(), []string{"sh", "-c", "echo why >&2; exit 3"}, nil, nil); err == nil {
		t.Errorf("a failed program: got %+v, want an error", got)
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
	busy := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
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
