package waiting

import (
	"bytes"
	"fmt"
	"os"
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
	cmd := testenv.Command(t, os.Args[0])
	cmd.Env = environment(t, mode)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", mode, err)
	}
	return parseTruth(t, stdout)
}

// watch runs fulgur on the whole system, or on the target in args, while f runs.
func watch(t *testing.T, f func() truth, args ...string) measured {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.pb.gz")
	var m measured
	m.stderr, _ = during(t, func() { m.truth = f() }, append(slices.Clone(args), "-o", out)...)
	m.profile = readProfile(t, out)
	return m
}

// during runs f while fulgur measures. It returns fulgur's standard error, and how long
// fulgur ran.
func during(t *testing.T, f func(), args ...string) (stderr string, took time.Duration) {
	t.Helper()
	testenv.Root(t)
	cmd := testenv.Command(t, program(t), args...)
	var output bytes.Buffer
	cmd.Stderr = &output
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if !testenv.AwaitPolls(t, cmd.Process.Pid) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("fulgur %s does not measure: %s", strings.Join(args, " "), &output)
	}
	f()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("fulgur %s: %v\n%s", strings.Join(args, " "), err, &output)
	}
	return output.String(), time.Since(begin)
}

// awaitLink waits until a process has attached a BPF program with one of the names. It
// returns false if the process exits before.
func awaitLink(t *testing.T, pid int, ended <-chan error, programs ...string) (attached bool) {
	t.Helper()
	testenv.Await(t, func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range descriptors {
			attached = attached || slices.Contains(programs, linkedProgram(d))
		}
		return attached
	}, func() string {
		return fmt.Sprintf("process %d attached none of the BPF programs %s", pid, strings.Join(programs, ", "))
	})
	return attached
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
