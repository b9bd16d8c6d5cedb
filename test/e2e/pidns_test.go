package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/testenv"
)

// inPIDNamespace makes cmd run as process 1 of a PID namespace, with the namespace's /proc, after a shell
// has run a script there. The namespace ends with cmd.
func inPIDNamespace(t *testing.T, cmd *exec.Cmd, script string) {
	t.Helper()
	cmd.Args = append([]string{"sh", "-c", script + `exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Args = append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}, cmd.Args...)
	cmd.Path = testenv.Tool(t, "unshare")
}

// descendant returns the descendant of a process that runs the program with this name.
func descendant(t *testing.T, parent int, comm string) (pid int) {
	t.Helper()
	testenv.Await(t, func() bool {
		all, err := target.Descendants([]int{parent})
		if err != nil {
			t.Fatal(err)
		}
		for _, pid = range all {
			if name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); err == nil && strings.TrimSpace(string(name)) == comm {
				return true
			}
		}
		return false
	}, func() string { return "no process " + comm })
	return pid
}

// In a PID namespace, its processes and those of descendant namespaces are measured. Of all others,
// only the CPU time is counted, in one stack.
func TestPIDNamespace(t *testing.T) {
	testenv.Root(t)
	load(t, "20s") // outside, e2e.test
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"inside", "below"} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("E2E_WORKLOAD", "1h")
	cmd := command(t, "profile", "-F", "499", "-f")
	inPIDNamespace(t, cmd, dir+"/inside & unshare --pid --fork "+dir+"/below & ")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fulgur := descendant(t, cmd.Process.Pid, "fulgur")
	if !testenv.AwaitPolls(t, fulgur) {
		t.Fatalf("timeout: fulgur does not sample: %s", cmd.Stderr)
	}
	for _, name := range []string{"inside", "below"} {
		testenv.AwaitCPUTime(t, descendant(t, cmd.Process.Pid, name), time.Second)
	}
	if err := syscall.Kill(fulgur, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	r := finish(t, cmd)
	if r.code != 0 || !strings.Contains(r.stderr, "(whole PID namespace, ") {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	tasks := map[string]int{}
	for stack, n := range folded(t, r.stdout) {
		task, _, _ := strings.Cut(stack, ";")
		tasks[task] += n
		if task == "[outside]" && stack != task {
			t.Errorf("got the stack %s of a process outside", stack)
		}
	}
	for _, task := range []string{"inside", "below", "[outside]"} {
		if tasks[task] == 0 {
			t.Errorf("got no sample of %s", task)
		}
	}
	if tasks["e2e.test"] > 0 {
		t.Errorf("got samples of a process outside of the namespace: %v", tasks)
	}
}
