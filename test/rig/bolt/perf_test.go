package bolt

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"fulgur/internal/testenv"
	"fulgur/test/rig/pmu"
)

// fulgur convert makes the same profile from perf's recording as fulgur bolt makes from
// the same records, for a program with a fixed address and for a position-independent
// one.
func TestPerf(t *testing.T) {
	perf := testenv.Tool(t, "perf")
	dir := t.TempDir()
	fulgur := testenv.Program(t, "fulgur/cmd/fulgur", dir)
	pie := writePIE(t, dir)
	for _, test := range []struct {
		name, path string
		start      func(t *testing.T) workload
	}{
		{"fixed", os.Args[0], func(t *testing.T) workload { return threads(t, 3) }},
		{"pie", pie, func(t *testing.T) workload { return start(t, exec.Command(pie)) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			// The emulated processor sometimes mistakes its flags on an NMI (see emulated
			// in test/rig/report.go), and once a trace was counted twice. Try again: a
			// bug of fulgur shows the second time, too.
			var differences []string
			for range 2 {
				data := filepath.Join(t.TempDir(), test.name+".data")
				if differences = comparePerf(t, perf, fulgur, test.path, data, test.start(t)); len(differences) == 0 {
					return
				}
				t.Logf("the profiles differ: %s", differences)
			}
			t.Errorf("the profiles differ: %s", differences)
		})
	}
}

// comparePerf compares the profiles that fulgur convert and fulgur bolt make of the same
// records of a workload with the prepared records. It returns the differences.
func comparePerf(t *testing.T, perf, fulgur, path, data string, w workload) (differences []string) {
	t.Helper()
	pmu.Load(t, pmu.Options{NMI: true})
	const windows, window = 300, 32
	o := newOracle(t, path, false)
	o.prepare(t, w.pid, windows, window)
	want := o.want(t)
	record(t, perf, w, data)

	cmd := exec.Command(fulgur, "convert", "--format", "preagg", "--llvm", "22", "--binary", path, data)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	converted, err := cmd.Output()
	if err != nil {
		t.Fatalf("fulgur convert: %v\n%s", err, &stderr)
	}
	if string(converted) != want {
		differences = append(differences, "converted "+firstDifference(string(converted), want))
	}

	pmu.Load(t, pmu.Options{NMI: true})
	newOracle(t, path, false).prepare(t, w.pid, windows, window)
	r := begin(t, []workload{w}, "-p", strconv.Itoa(w.pid), "600")
	r.end(t)
	if sampled := r.stdout.String(); sampled != want {
		differences = append(differences, "sampled "+firstDifference(sampled, want))
	}
	return differences
}

// record runs perf record on the branches of a process until the PMU has no more windows.
func record(t *testing.T, perf string, w workload, data string) {
	t.Helper()
	cmd := exec.Command(perf, "record", "-q", "-b", "-e", "cycles:u", "-F", "2000", "-p", strconv.Itoa(w.pid), "-o", data)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	until(t, "perf's events on all CPUs", func() bool { return status(t).Events >= runtime.NumCPU() })
	w.letGo()
	until(t, "samples to take all windows", func() bool { return !status(t).Left() })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // perf exits by the signal
	if _, err := os.Stat(data); err != nil {
		t.Fatalf("perf record: %v\n%s", err, &stderr)
	}
}
