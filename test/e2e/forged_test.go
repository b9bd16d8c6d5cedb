package e2e

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// forged samples a program of testdata that pretends to be a language runtime.
func forged(t *testing.T, source, mode string, flags ...string) (samples []streamed, summary string) {
	t.Helper()
	testenv.Root(t)
	cmd := exec.Command(compile(t, source, "forged", append(flags, "-rdynamic")...), mode)
	start(t, cmd)
	pid := strconv.Itoa(cmd.Process.Pid)
	r := sampleWork(t, 500*time.Millisecond, []string{pid}, "profile", "-p", pid, "-F", "1999", "--stream", "--format", "jsonl")
	for _, s := range streamedBy(t, r) {
		if slices.Contains([]string{"complete", "depth limit", "unreadable stack"}, s.End) {
			samples = append(samples, s)
		}
	}
	if len(samples) == 0 {
		t.Fatalf("no samples: %s", r.stderr)
	}
	return samples, r.stderr
}

// Endless frames are truncated at the limit of frames.
func TestForgedCycle(t *testing.T) {
	parallel(t)
	testenv.SlowInVM(t)
	samples, _ := forged(t, "forged.c", "cycle")
	seen := 0
	for _, s := range samples {
		if n := len(s.pyFrames()); n == maxFrames && s.End == "depth limit" {
			seen++
		} else if n > 0 {
			t.Fatalf("got %d frames, end %s, want a truncated stack", n, s.End)
		}
	}
	if seen == 0 {
		t.Error("got no sample with the forged frames")
	}
}

// An endless list of threads, nonsensical offsets, and versions that fulgur does not know, cost at
// most the Python frames. The summary names such versions.
func TestForgedRuntime(t *testing.T) {
	parallel(t)
	testenv.SlowInVM(t)
	testenv.Root(t)
	for name, test := range map[string]struct {
		mode    string
		flags   []string
		summary string
	}{
		"threads":       {mode: "threads"},
		"garbage":       {"threads", []string{"-DGARBAGE"}, "python 3.14.0: its layout is not known"},
		"free-threaded": {"codes", []string{"-DFREE_THREADED=1"}, "python 3.14, free-threaded: not supported yet"},
		"newer":         {"codes", []string{"-DVERSION=0x031000a1"}, "python 3.16: not supported yet"},
	} {
		t.Run(name, func(t *testing.T) {
			samples, summary := forged(t, "forged.c", test.mode, test.flags...)
			for _, s := range samples {
				if s.End != "complete" || len(s.pyFrames()) != 0 {
					t.Fatalf("got end %s, frames %+v, want a complete stack without Python frames", s.End, s.pyFrames())
				}
			}
			if !strings.Contains(summary, test.summary) {
				t.Errorf("got a summary without %q:\n%s", test.summary, summary)
			}
		})
	}
}

// If a process creates code all the time, fulgur sends a limited part of the code, and
// all samples: see code_allowed in bpf/runtime.h.
func TestForgedCodes(t *testing.T) {
	parallel(t)
	testenv.SlowInVM(t)
	const (
		window = 1 << 27 * time.Nanosecond
		// The record of code with a table of lines of 16 KB is larger than that table.
		most = (128 << 10) / (16 << 10)
	)
	samples, _ := forged(t, "forged.c", "codes")
	// By first line: samples in the same code send it once. A sample may have the name of
	// code that a later one sent.
	sent := map[int]bool{}
	for _, s := range samples {
		chain := s.pyFrames()
		if len(chain) > 1 {
			t.Fatalf("got frames %+v, want at most one", chain)
		}
		if len(chain) == 1 && chain[0].name == "forged" {
			sent[chain[0].line] = true
		}
	}
	first, last := samples[0].at(t), samples[len(samples)-1].at(t)
	windows := int(last.Sub(first)/window) + 2 // the time begins and ends within one
	t.Logf("%d functions in %d samples and %d windows", len(sent), len(samples), windows)
	if len(sent) <= most || len(sent) > most*windows {
		t.Errorf("%d functions were sent, want more than %d and at most %d", len(sent), most, most*windows)
	}
}

// at returns the time of a sample.
func (s streamed) at(t *testing.T) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s.Time)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
