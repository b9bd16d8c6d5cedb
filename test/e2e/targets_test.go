package e2e

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// Children that there are when a profile begins are sampled, and it lasts for
// as long as one of them does.
func TestProfileChildrenThatThereAre(t *testing.T) {
	testenv.Root(t)
	parent := exec.Command(testenv.Tool(t, "sh"), "-c", os.Args[0]+" & sleep 1; exit 0")
	parent.Env = append(os.Environ(), "E2E_WORKLOAD=seconds")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = parent.Wait() })
	time.Sleep(testenv.Patience(100 * time.Millisecond))
	r := fulgur(t, "profile", "-p", strconv.Itoa(parent.Process.Pid), "--children", "-F", "199", "-f", "60")
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	if s := share(folded(t, r.stdout), ";fulgur/test/e2e.long"); s < 0.5 {
		t.Errorf("%.2f of the samples are in the child's function:\n%s", s, r.stdout)
	}
	// The shell is gone after a second, its child after three.
	samples := 0
	for _, n := range folded(t, r.stdout) {
		samples += n
	}
	if samples < 199*3/2 {
		t.Errorf("%d samples: the profile ended with the parent:\n%s", samples, r.stderr)
	}
}

// What the kernel does to take a process apart is the process's time, too.
func TestProfileExit(t *testing.T) {
	testenv.Root(t)
	cmd := command(t, "profile", "-F", "997", "-f", "--", os.Args[0])
	cmd.Env = append(os.Environ(), "E2E_WORKLOAD=memory")
	r := finish(t, cmd)
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	for stack := range folded(t, r.stdout) {
		if strings.Contains(stack, ";exit_mmap;") {
			return
		}
	}
	t.Errorf("no sample in exit_mmap:\n%s", r.stdout)
}
