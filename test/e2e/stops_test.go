package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/linux/tracing"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// Where perf events are denied, too, a user samples own processes by stopping their threads, with whole stacks.
func TestStops(t *testing.T) {
	run, sample, workload := unprivilegedRuns(t)
	dir := public(t)
	const method = "--via=ptrace"
	profile := func(t *testing.T, r result) map[string]int {
		t.Helper()
		if r.code != 0 || !strings.HasPrefix(r.stderr, "fulgur: samples by stopping threads for moments (ptrace): ") ||
			!strings.Contains(r.stderr, "\n  without CAP_BPF: by stops (ptrace), time in the kernel counts at the system call") {
			t.Fatalf("exit code %d, want 0 and lines about stops: %s", r.code, r.stderr)
		}
		return folded(t, r.stdout)
	}
	t.Run("known paths", func(t *testing.T) {
		program := duplicate(t, compile(t, "paths.c", "paths", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"), dir)
		found := map[string]int{}
		r := run(nil, "profile", method, "-F", "997", "-f", "--", program, "200")
		for stack, n := range profile(t, r) {
			if frames := strings.Split(stack, ";"); frames[0] == "paths" {
				found[onPaths(frames[1:])] += n
			}
		}
		// The rest are the first steps of the dynamic loader.
		if all := total(found); all == 0 || known(found) < stat.Binomial(all, 0.95).Low {
			t.Errorf("%d of %d samples are on a path of the program, want nearly all: %v\n%s", known(found), all, found, r.stderr)
		}
	})
	t.Run("Go", func(t *testing.T) {
		stacks := profile(t, run(nil, "profile", method, "-F", "499", "-f", "--", workload))
		if n := count(stacks, ";fulgur/test/e2e.long"); n == 0 {
			t.Errorf("got no samples in the command's function: %v", stacks)
		}
	})
	t.Run("python3", func(t *testing.T) {
		testenv.SlowInVM(t)
		python := testenv.File(t, "/usr/bin/python3") // which nobody can execute
		const code = "def inner(n):\n s = 0\n for i in range(n): s += i * i % 7\ndef outer(): inner(100000)\nfor _ in range(60): outer()"
		stacks := profile(t, run(nil, "profile", method, "-F", "199", "-f", "--", python, "-c", code))
		if n := count(stacks, ";<module>;outer;inner;_PyEval_EvalFrameDefault"); n == 0 {
			t.Errorf("got no stacks of the program's functions: %v", stacks)
		}
	})
	t.Run("node", func(t *testing.T) {
		testenv.SlowInVM(t)
		const code = "let s = 0; for (let i = 0; i < 600000000; i++) s += i % 7; console.error(s)"
		stacks := profile(t, run(nil, "profile", method, "-F", "199", "-f", "--", testenv.Tool(t, "node"), "-e", code))
		if n := count(stacks, ";node::Start"); n == 0 {
			t.Errorf("got no stacks from the start of the program: %v", stacks)
		}
	})
	t.Run("process", func(t *testing.T) {
		mayTraceOthers(t)
		cmd := as(exec.Command(workload))
		cmd.Env = append(os.Environ(), "E2E_WORKLOAD=shares")
		start(t, cmd)
		pid := strconv.Itoa(cmd.Process.Pid)
		stacks := profile(t, sample(pid, nil, "profile", method, "-p", pid, "-F", "199", "-f"))
		if n := count(stacks, ";fulgur/test/e2e.long"); n == 0 {
			t.Errorf("got no samples in the function of the process: %v", stacks)
		}
	})
	t.Run("kernel time", func(t *testing.T) {
		stacks := profile(t, run(nil, "profile", method, "-F", "997", "-f", "--", testenv.Tool(t, "dd"), "if=/dev/zero", "of=/dev/null", "bs=1M", "count=2000"))
		if n, all := count(stacks, ";read"), total(stacks); n < all/2 {
			t.Errorf("%d of %d samples are at the system call, want most: %v", n, all, stacks)
		}
	})
	t.Run("programs that end", func(t *testing.T) {
		times := 10
		if testenv.IsLong() {
			times = 100
		}
		for range times {
			fulgur := duplicate(t, program(t), public(t))
			if r := run(nil, "profile", method, "-F", "1999", "-q", "-f", "--", fulgur, "profile", "--help"); r.code != 0 || !strings.HasPrefix(r.stdout, "Usage: ") {
				t.Fatalf("exit code %d, want 0 and the command's output: %s%s", r.code, r.stdout, r.stderr)
			}
		}
	})
	t.Run("in the files", func(t *testing.T) {
		r := run(nil, "profile", method, "-F", "499", "--format", "pprof", "--", workload)
		file := filepath.Join(dir, "profile.pb.gz")
		if err := os.WriteFile(file, []byte(r.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := fulgur(t, "report", file); r.code != 0 || !strings.Contains(r.stdout, "without CAP_BPF: by stops (ptrace)") {
			t.Errorf("exit code %d; the report does not say how it was measured: %s%s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("another user", func(t *testing.T) {
		pid := strconv.Itoa(load(t, "shares").Process.Pid)
		r := run(nil, "profile", method, "-f", "-p", pid)
		if r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "process "+pid+": belongs to another user") {
			t.Errorf("exit code %d, want 1 and the reason: %s%s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("what stops cannot measure", func(t *testing.T) {
		for _, args := range [][]string{{"1"}, {"-e", "page-faults", "--", workload}, {"-e", "cpu-clock:u", "--", workload}, {"-C", "0", "--", workload}, {"-K", "--", workload}} {
			if r := run(nil, append([]string{"profile", method, "-f"}, args...)...); r.code != 2 || !strings.Contains(r.stderr, "stops (ptrace) ") {
				t.Errorf("%v: exit code %d, want 2 and the reason: %s", args, r.code, r.stderr)
			}
		}
	})
}

// mayTraceOthers skips the test unless users may trace processes that they have not started by fulgur.
func mayTraceOthers(t *testing.T) {
	t.Helper()
	if tracing.Scope() > 0 {
		testenv.Skip(t, "needs kernel.yama.ptrace_scope=0")
	}
}

// Debian's kernels deny perf events by default: fulgur then stops threads, without being told.
func TestStopsByDefault(t *testing.T) {
	testenv.VM(t)
	run, workload := unprivileged(t)
	setParanoid(t, "3")
	r := run(nil, "profile", "-F", "199", "-f", "--", workload)
	if regexp.MustCompile(`^fulgur: samples user code only, by perf events`).MatchString(r.stderr) {
		t.Log("this kernel is not Debian's")
		return
	}
	if r.code != 0 || !strings.HasPrefix(r.stderr, "fulgur: samples by stopping threads") {
		t.Fatalf("exit code %d, want 0 and a line about stops: %s", r.code, r.stderr)
	}
	if stacks := folded(t, r.stdout); count(stacks, ";fulgur/test/e2e.long") == 0 {
		t.Errorf("got no samples in the command's function: %v", stacks)
	}
}
