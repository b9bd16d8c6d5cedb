package browser

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"fulgur/internal/testenv"
)

// The front end shows the recording of a command: it loads, names the command, and
// distinguishes CPU time from waits.
func TestFirefoxRecordedCommand(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "out.json.gz")
	const naps = "for i in 1 2 3 4; do sleep 0.05; done; i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"
	if report, err := exec.Command(program(t), "record", "-o", path, "--", "sh", "-c", naps).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, report)
	}
	f := load(t, func(w io.Writer) error {
		b, err := os.ReadFile(path)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	})
	var info struct {
		Processes []struct {
			PID, Name string
			CPUMs     float64
			Threads   []struct{ ThreadHandle, Name string }
		}
	}
	f.ask(&info, "profile", "info", "--all")
	names := map[string]int{}
	shell := -1
	for i, p := range info.Processes {
		names[p.Name]++
		if p.Name == "sh" {
			shell = i
		}
	}
	if names["sleep"] != 4 || shell < 0 || info.Processes[shell].CPUMs <= 0 {
		t.Fatalf("processes = %+v, want the command's", info.Processes)
	}
	var all, busy samples
	f.ask(&all, "thread", "samples", "--include-idle", "--thread", info.Processes[shell].Threads[0].ThreadHandle)
	f.ask(&busy, "thread", "samples", "--thread", info.Processes[shell].Threads[0].ThreadHandle)
	idle := slices.IndexFunc(all.CategoryBreakdown.Categories, func(s share) bool { return s.Name == "Idle" })
	if idle < 0 {
		t.Fatalf("no waits in %+v", all.CategoryBreakdown)
	}
	waits := all.CategoryBreakdown.Categories[idle]
	child := slices.IndexFunc(waits.Subcategories, func(s share) bool { return s.Name == "wait for child" })
	if child < 0 {
		t.Fatalf("no waits for children in %+v", waits)
	}
	// From each fork to the end of the sleep, the shell waits for the child or for a CPU,
	// or it works.
	waited := waits.Subcategories[child].Samples + busy.CategoryBreakdown.TotalSamples
	for _, s := range waits.Subcategories {
		if s.Name == "preempted" {
			waited += s.Samples
		}
	}
	if waited < 4*50 {
		t.Errorf("waits of the shell = %+v, want 200 ms for its children", waits)
	}
	whole := all.CategoryBreakdown.TotalSamples
	if got := busy.CategoryBreakdown.TotalSamples + waits.Samples; got < whole*0.99 || got > whole*1.01 {
		t.Errorf("got %v ms busy and %v ms idle, want %v ms together", busy.CategoryBreakdown.TotalSamples, waits.Samples, whole)
	}
	var markers struct {
		FlatMarkers []struct {
			Name, Label string
			HasStack    bool
		}
	}
	f.ask(&markers, "thread", "markers", "--list", "--thread", info.Processes[shell].Threads[0].ThreadHandle)
	for _, want := range []string{"OffCpu", "PageFault"} {
		if !slices.ContainsFunc(markers.FlatMarkers, func(m struct {
			Name, Label string
			HasStack    bool
		}) bool {
			return m.Name == want && m.HasStack
		}) {
			t.Errorf("no marker %s with a stack among %d", want, len(markers.FlatMarkers))
		}
	}
}
