package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// await waits until a file, which another process writes, contains text, and returns its
// content.
func await(t *testing.T, path, text string) string {
	t.Helper()
	var last []byte
	testenv.Await(t, func() bool {
		var err error
		last, err = os.ReadFile(path)
		return err == nil && strings.Contains(string(last), text)
	}, func() string { return fmt.Sprintf("%s: got %q, want %q", path, last, text) })
	return string(last)
}

// If the target exits before sampling begins, the profile is empty and the summary says
// why; a command's exit code is kept.
func TestTargetEndsDuringDelay(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	check := func(t *testing.T, cmd *exec.Cmd, code int, out string) {
		t.Helper()
		r := finish(t, cmd)
		if r.code != code {
			t.Errorf("exit code %d, want %d: %s", r.code, code, r.stderr)
		}
		if !strings.Contains(r.stderr, "nothing was sampled: the target exited during the delay") {
			t.Errorf("standard error = %q, want the reason why nothing was sampled", r.stderr)
		}
		if st, err := os.Stat(out); err != nil || st.Size() == 0 {
			t.Errorf("profile: %v, %v, want a file that is not empty", st, err)
		}
	}
	t.Run("command", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "out.pb.gz")
		check(t, command(t, "profile", "--delay", "1h", "-o", out, "--", testenv.Tool(t, "sh"), "-c", "exit 5"), 5, out)
	})
	t.Run("process", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "out.pb.gz")
		victim := load(t, "shares")
		pid := strconv.Itoa(victim.Process.Pid)
		cmd := command(t, "profile", "--delay", "1h", "-o", out, "-p", pid)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitWatch(t, cmd, pid)
		if err := victim.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = victim.Wait() // killed
		check(t, cmd, 0, out)
	})
}

// awaitWatch waits until a started fulgur has a pidfd of process pid; see
// proc_pid_fdinfo(5).
func awaitWatch(t *testing.T, fulgur *exec.Cmd, pid string) {
	t.Helper()
	testenv.Await(t, func() bool {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", fulgur.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(files, func(file string) bool {
			b, err := os.ReadFile(file) // a descriptor may be closed by now
			return err == nil && strings.Contains(string(b), "\nPid:\t"+pid+"\n")
		})
	}, func() string { return fmt.Sprintf("fulgur does not watch process %s: %s", pid, fulgur.Stderr) })
}

// The summary of a profile without samples says why it has none. With -q there is no
// summary.
func TestNothingSampled(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	sleeper := exec.Command(testenv.Tool(t, "sleep"), "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
	})
	pid := strconv.Itoa(sleeper.Process.Pid)
	awaitStat(t, pid, " (sleep) S ")
	r := fulgur(t, "profile", "-p", pid, "-f", "0.2")
	if r.code != 0 || r.stdout != "" {
		t.Errorf("exit code %d, want 0; output %q", r.code, r.stdout)
	}
	for _, want := range []string{
		`^0 samples \(pid ` + pid,
		`\n  nothing was sampled: the target did not run: it only waited`,
		`\n\nfulgur itself: \d+\.\d MB resident, \d+\.\d MB of BPF maps, \d+\.\d\d s CPU\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(r.stderr) {
			t.Errorf("no %q in:\n%s", want, r.stderr)
		}
	}
	if r := fulgur(t, "profile", "-q", "-p", pid, "-f", "0.2"); r != (result{}) {
		t.Errorf("with -q: result = %+v, want no output", r)
	}
}

// fulgur waits for a command that outlives the measurement, and asks it to exit on
// Ctrl-C.
func TestCommandOutlivesDuration(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	dir := t.TempDir()
	out, ready := filepath.Join(dir, "out.folded"), filepath.Join(dir, "ready")
	cmd := command(t, "profile", "-F", "997", "-o", out, "0.5", "--",
		testenv.Tool(t, "sh"), "-c", `trap "exit 5" TERM; : > "$0"; while :; do :; done`, ready)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, ready, "")
	await(t, out, "") // files appear complete
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := finish(t, cmd); r.code != 5 {
		t.Errorf("exit code %d, want the command's 5: %s", r.code, r.stderr)
	}
}

// If a profile cannot be written, fulgur reports that at once, and the command still
// ends normally.
func TestCommandOutlivesFailure(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	dir := t.TempDir()
	messages, end, ended := filepath.Join(dir, "messages"), filepath.Join(dir, "end"), filepath.Join(dir, "ended")
	cmd := command(t, "profile", "-o", "/dev/full", "--format", "pprof", "0.2", "--",
		testenv.Tool(t, "sh"), "-c", `until [ -e "$0" ]; do sleep 0.1; done; : > "$1"; exit 5`, end, ended)
	stderr, err := os.Create(messages)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const failure = "fulgur: write /dev/full: no space left on device"
	if s := await(t, messages, "fulgur: waiting for the command (pid "); !strings.Contains(s, failure) {
		t.Errorf("standard error = %q, want the failure at once", s)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("%v, want exit code 1", err)
	}
	if s := await(t, messages, ""); strings.Count(s, failure) != 2 {
		t.Errorf("standard error = %q, want the failure again at the end", s)
	}
	if _, err := os.Stat(ended); err != nil {
		t.Errorf("the command did not complete: %v", err)
	}
}

// With only CAP_BPF and CAP_PERFMON, a run works, and reports its limits at the start.
// With fewer capabilities, or if the kernel requires more, it reports the missing ones.
func TestReducedCapabilities(t *testing.T) {
	testenv.Root(t)
	const nobody = 65534
	run := func(t *testing.T, caps ...uintptr) result {
		cmd := command(t, "profile", "--via", "bpf", "-F", "997", "-f", "--", testenv.Tool(t, "sh"), "-c",
			"i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done")
		if err := os.Chmod(filepath.Dir(cmd.Path), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: caps,
		}
		return finish(t, cmd)
	}
	t.Run("enough", func(t *testing.T) {
		unlimitLocked(t)
		r := run(t, unix.CAP_BPF, unix.CAP_PERFMON)
		if r.code == 1 && strings.Contains(r.stderr, "\nfulgur: choosing an event: sysctl kernel.perf_event_paranoid is 3; ") {
			testenv.VM(t) // to follow the advice
			if err := os.WriteFile("/proc/sys/kernel/perf_event_paranoid", []byte("2"), 0); err != nil {
				t.Fatal(err)
			}
			r = run(t, unix.CAP_BPF, unix.CAP_PERFMON)
		}
		if r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		checkTask(t, folded(t, r.stdout), "sh")
		warnings, _, _ := strings.Cut(r.stderr, " samples (")
		for _, want := range []string{
			"without CAP_SYS_PTRACE", "without CAP_CHECKPOINT_RESTORE", "without CAP_DAC_READ_SEARCH", "sudo setcap cap_bpf,",
		} {
			if !strings.Contains(warnings, want) {
				t.Errorf("no %q in:\n%s", want, warnings)
			}
		}
	})
	t.Run("too few", func(t *testing.T) {
		r := run(t, unix.CAP_BPF)
		if r.code != 1 || !strings.Contains(r.stderr, "profiling needs CAP_PERFMON: run fulgur with sudo") {
			t.Errorf("exit code %d, want 1; %s", r.code, r.stderr)
		}
	})
}

// If a command exits before its first stack is processed, its files still have names:
// each of its page faults is in a file.
func TestBriefCommand(t *testing.T) {
	testenv.OneKernel(t)
	testenv.Root(t)
	r := fulgur(t, "profile", "-e", "page-faults", "-c", "1", "-f", "--", testenv.Tool(t, "true"))
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	var all, unknown int
	for stack, n := range folded(t, r.stdout) {
		all += n
		if leaf := stack[strings.LastIndexByte(stack, ';')+1:]; strings.HasPrefix(leaf, "[unknown+") {
			unknown += n
		}
	}
	if all == 0 || unknown > 0 {
		t.Errorf("%d of %d page faults have no file, want 0:\n%s", unknown, all, r.stdout)
	}
}
