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

// forged samples a program of testdata that pretends to be a language runtime, and exports its
// symbols. mode is its first argument, with further ones after spaces.
func forged(t *testing.T, source, mode string, flags ...string) (samples []streamed, summary string) {
	t.Helper()
	return forgedProgram(t, mode, compile(t, source, "forged", append(flags, "-rdynamic")...))
}

// forgedProgram is like forged, for a program that was compiled in another way.
func forgedProgram(t *testing.T, mode, program string) (samples []streamed, summary string) {
	t.Helper()
	testenv.Root(t)
	cmd := exec.Command(program, strings.Fields(mode)...)
	start(t, cmd)
	pid := strconv.Itoa(cmd.Process.Pid)
	r := sampleWork(t, testenv.Patience(500*time.Millisecond), []string{pid}, "profile", "-p", pid, "-F", "1999", "--stream", "--format", "jsonl")
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

// missing is the note in the summary about threads whose state is not found.
const missing = "may lack Python functions"

// The state of a thread is found behind those of other threads, and in a program that embeds CPython
// without exporting it. If there are too many others, the summary says so.
func TestForgedThread(t *testing.T) {
	parallel(t)
	testenv.EveryKernel(t)
	for name, test := range map[string]struct {
		mode  string
		flags []string // without glibc's library, fulgur searches for the state
		found bool
	}{
		"exported":         {"last 0", []string{"-rdynamic"}, true},
		"by key":           {"last 2000", []string{"-rdynamic"}, true},
		"embedded":         {"last 0", []string{"-DEMBEDDED"}, true},
		"behind many":      {"last 900", []string{"-DEMBEDDED", "-static"}, true},
		"behind too many":  {"last 2000", []string{"-DEMBEDDED", "-static"}, false},
		"not in the list":  {"threads", []string{"-rdynamic"}, false},
		"without the list": {"threads", []string{"-DEMBEDDED", "-static"}, false},
	} {
		if testenv.BriefInVM() && name != "by key" && name != "behind many" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			samples, summary := forgedProgram(t, test.mode, compile(t, "forged.c", "forged", test.flags...))
			for _, s := range samples {
				if n := len(s.pyFrames()); s.End != "complete" || (n == 1) != test.found || n > 1 {
					t.Fatalf("got end %s, frames %+v; want Python frames: %t", s.End, s.pyFrames(), test.found)
				}
			}
			if strings.Contains(summary, missing) == test.found {
				t.Errorf("got %q in the summary: %t, want %t:\n%s", missing, test.found, !test.found, summary)
			}
		})
	}
}

// Up to CPython 3.11, a thread may run states of several interpreters. Samples have the functions of
// the state that runs, also if the thread has released the lock, if another thread made the state, or
// if there are so many states that fulgur relies on the last one that held the lock.
func TestForgedStates(t *testing.T) {
	parallel(t)
	testenv.EveryKernel(t)
	for name, test := range map[string]struct {
		mode string
		// complete is false if a thread that has released the lock needs a sample that held it.
		complete bool
	}{
		"own":          {"own", true},
		"other":        {"other", true},
		"idle":         {"idle", true},
		"freed":        {"freed", true},
		"among others": {"freed 50", true},
		"among many":   {"own 500", false},
	} {
		if testenv.BriefInVM() && name != "among others" {
			continue
		}
		for _, flags := range [][]string{{"-rdynamic"}, {"-static"}} { // without glibc's library, fulgur does not know the key
			t.Run(name+flags[0], func(t *testing.T) {
				samples, summary := forgedProgram(t, test.mode, compile(t, "forged_states.c", "states", flags...))
				seen, held := map[string]int{}, false
				for _, s := range samples {
					leaf := s.User[0].Function
					want := map[string]string{"holds": "inner", "releases": "inner", "returns": "outer"}[leaf]
					held = held || leaf == "holds"
					if want == "" || !held && !test.complete {
						continue // it is between two of them
					}
					seen[leaf]++
					if got := s.pyFrames(); len(got) != 1 || got[0].name != want || !s.entered() {
						t.Fatalf("%s: got frames %+v, want %s", leaf, s.User, want)
					}
				}
				if seen["holds"] == 0 || seen["releases"] == 0 {
					t.Errorf("got samples %v, want some while the lock is held, and some while it is not", seen)
				}
				if test.complete && strings.Contains(summary, missing) {
					t.Errorf("got %q in the summary: %s", missing, summary)
				}
			})
		}
	}
}

// Nonsensical offsets and versions that fulgur does not know cost at most the Python frames. The
// summary names such versions.
func TestForgedRuntime(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for name, test := range map[string]struct {
		mode    string
		flags   []string
		summary string
	}{
		"garbage":       {"threads", []string{"-DGARBAGE", "-rdynamic"}, "python 3.14.0: its layout is not known"},
		"free-threaded": {"codes", []string{"-DFREE_THREADED=1", "-rdynamic"}, "python 3.14, free-threaded: not supported yet"},
		"newer":         {"codes", []string{"-DVERSION=0x031000a1", "-rdynamic"}, "python 3.16: not supported yet"},
		"stripped":      {"codes", []string{"-DEMBEDDED", "-s"}, "python without symbols"},
		// Up to 3.6, CPython has these symbols.
		"older": {"codes", []string{"-D_PyRuntime=runtime", "-DPyCode_Type=Py_GetVersion", "-D_PyEval_EvalFrameDefault=PyEval_EvalFrameEx", "-rdynamic"}, "python before 3.9"},
	} {
		t.Run(name, func(t *testing.T) {
			samples, summary := forgedProgram(t, test.mode, compile(t, "forged.c", "forged", test.flags...))
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
// all samples: see ring_allows in bpf/ring.h.
func TestForgedCodes(t *testing.T) {
	parallel(t)
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
