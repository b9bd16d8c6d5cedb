package session

import (
	"slices"
	"strings"
	"testing"

	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/source"
	"fulgur/internal/process"
	"fulgur/internal/profile"
)

// The summary names processes that mapped more than fulgur could follow. Their names are
// untrusted.
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
	if len(lines) != maxStorms+1 || !slices.Equal(lines[:2], want) || lines[maxStorms] != "other processes that did the same: 2" {
		t.Errorf("stormLines = %q, want %q and a count of the others", lines, want)
	}
	if lines := stormLines(nil); len(lines) > 0 {
		t.Errorf("stormLines(nil) = %q, want none", lines)
	}
}

// If a source ended the run, the summary begins with the reason, and makes no guesses why there
// are no samples.
func TestSummaryStopped(t *testing.T) {
	r := &run{subject: new(oncpu.Subject), sources: []source.Source{ending{why: "too slow"}}, options: new(Options)}
	p := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}).Profile(profile.Meta{}, profile.Losses{})
	text, err := r.summary(Window{Profile: p})
	if err != nil || !strings.Contains(text, "\n  stopped: too slow\n") || strings.Contains(text, "nothing") {
		t.Errorf("got %q, %v", text, err)
	}
}

// The summary reports functions that had no room.
func TestUnkeptLines(t *testing.T) {
	if got := unkeptLines(0); got != nil {
		t.Errorf("got %q without such functions", got)
	}
	if got := unkeptLines(3); len(got) != 1 || !strings.Contains(got[0], "3 functions") {
		t.Errorf("got %q", got)
	}
}
