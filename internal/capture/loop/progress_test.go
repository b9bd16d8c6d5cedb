package loop

import (
	"bytes"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"fulgur/internal/capture/target"
)

// The line reads at most 50 CPUs a second, and changes at most twice.
func TestProgressEvery(t *testing.T) {
	for cpus, want := range map[int]time.Duration{1: 500 * time.Millisecond, 25: 500 * time.Millisecond, 256: 256 * time.Second / 50} {
		if got := progressEvery(cpus); got != want {
			t.Errorf("%d CPUs: got %v, want %v", cpus, got, want)
		}
	}
}

// The progress line is written at most twice a second, always to the same line, and is
// erased at the end.
func TestProgressLine(t *testing.T) {
	var out bytes.Buffer
	line := &ProgressLine{Wanted: true, Out: &out}
	line.clear()
	if out.Len() > 0 {
		t.Errorf("got %q after removing a line that was never shown, want nothing", &out)
	}
	line.show(new(fake))
	line.show(new(fake)) // too soon
	if got := out.String(); got != "\r\x1b[K\x1b[?7lso far\x1b[?7h" {
		t.Errorf("got %q, want the line once", got)
	}
	line.shown = line.shown.Add(-progressEvery(runtime.NumCPU()))
	line.show(new(fake))
	if got := out.String(); got != strings.Repeat("\r\x1b[K\x1b[?7lso far\x1b[?7h", 2) {
		t.Errorf("got %q after a while, want the line twice", got)
	}
	out.Reset()
	line.clear()
	if got := out.String(); got != "\r\x1b[K" {
		t.Errorf("got %q, want the line erased", got)
	}
	out.Reset()
	line = &ProgressLine{Out: &out}
	line.show(new(fake))
	line.clear()
	if out.Len() > 0 {
		t.Errorf("got %q without a progress line, want nothing", &out)
	}
}

func TestDescribe(t *testing.T) {
	l := &Loop{Target: target.Target{Scope: target.Processes, PIDs: []int{7}}, Start: time.Now().Add(-3 * time.Second)}
	if got := l.Describe("9 samples"); !regexp.MustCompile(`^[1-9][0-9]*\.[0-9] s, 9 samples, Ctrl-C to stop \(pid 7\)$`).MatchString(got) {
		t.Errorf("without a limit: got %q, want the time, samples and key", got)
	}
	l.Limit = 10 * time.Second
	if got := l.Describe("9 samples"); !regexp.MustCompile(`^[1-9][0-9]*\.[0-9] s of 10\.0 s, 9 samples \(pid 7\)$`).MatchString(got) {
		t.Errorf("with a limit: got %q, want both times and samples", got)
	}
}
