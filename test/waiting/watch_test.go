package waiting

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"fulgur/internal/testenv"
)

// alone runs a workload that fulgur did not start.
func alone(t *testing.T, mode string) truth {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = environment(t, mode)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", mode, err)
	}
	return parseTruth(t, stdout)
}

// watch runs fulgur on the whole system while f runs. fulgur is ready when one of the BPF
// programs is attached.
func watch(t *testing.T, programs []string, f func() truth, args ...string) measured {
	t.Helper()
	testenv.Root(t)
	out := filepath.Join(t.TempDir(), "out.pb.gz")
	cmd := exec.Command(program(t), append(slices.Clone(args), "-o", out)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	if !awaitLink(t, cmd.Process.Pid, ended, programs...) {
		t.Fatalf("fulgur %s exited at once: %s", strings.Join(args, " "), &stderr)
	}
	known := f()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("fulgur %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return measured{profile: readProfile(t, out), truth: known, stderr: stderr.String()}
}

// awaitLink waits until a process has attached a BPF program with one of the names. It
// returns false if the process exits before.
func awaitLink(t *testing.T, pid int, ended <-chan error, programs ...string) bool {
	t.Helper()
	for end := time.Now().Add(testenv.Patience(time.Minute)); time.Now().Before(end); {
		select {
		case <-ended:
			return false
		case <-time.After(20 * time.Millisecond):
		}
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range descriptors {
			if slices.Contains(programs, linkedProgram(d)) {
				return true
			}
		}
	}
	t.Fatalf("process %d attached none of the BPF programs %s", pid, strings.Join(programs, ", "))
	return false
}

// linkedProgram returns the name of the program that a descriptor keeps attached, "" if
// the descriptor is not a BPF link.
func linkedProgram(fdinfo string) string {
	b, err := os.ReadFile(fdinfo)
	if err != nil || !bytes.Contains(b, []byte("link_type:")) {
		return "" // closed meanwhile, or not a link
	}
	_, after, _ := strings.Cut(string(b), "prog_id:")
	var id uint32
	if _, err := fmt.Sscan(after, &id); err != nil {
		return ""
	}
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}
