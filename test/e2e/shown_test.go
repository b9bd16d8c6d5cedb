package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// Tools for pprof first show the value that the command's own output shows, or the weight of its samples.
func TestValueShownFirst(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	parallel(t)
	for command, want := range map[string]string{
		"offcpu": "off-cpu", "runq": "runnable", "faults": "faults", "softirq": "softirq-time", "profile": "cpu", "profile --wall": "wall",
		"latency -e syscalls:sys_enter_close": "latency",
	} {
		out := filepath.Join(t.TempDir(), "out.pb.gz")
		args := append(strings.Fields(command), "-o", out, "--", "sh", "-c", "sleep 0.01; i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done")
		if r := fulgur(t, args...); r.code != 0 {
			t.Fatalf("%s: exit code %d: %s", command, r.code, r.stderr)
		}
		if got := readPprof(t, out).DefaultSampleType; got != want {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
}
