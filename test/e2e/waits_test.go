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
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// waiter is what a thread of testdata/waiters.c says of itself: a function in which it waits, the reason there, and the least
// and the most time of its waits, in us.
type waiter struct {
	function, reason string
	least, most      int
}

// readWaiters reads the account of testdata/waiters.c.
func readWaiters(t *testing.T, account string) map[string]*waiter {
	t.Helper()
	threads := map[string]*waiter{
		"napper": {function: "nap", reason: "[sleep]"}, "reader": {function: "read_pipe", reason: "[pipe]"},
		"locker": {function: "take_lock", reason: "[futex]"}, "loser": {reason: "[preempted]"}, "loser2": {reason: "[preempted]"},
	}
	lines := regexp.MustCompile(`(?m)^(\w+) (\d+) (\d+)$`).FindAllStringSubmatch(account, -1)
	if len(lines) != len(threads) {
		t.Fatalf("got an account of %d threads, want %d: %s", len(lines), len(threads), account)
	}
	for _, m := range lines {
		threads[m[1]].least, _ = strconv.Atoi(m[2])
		threads[m[1]].most, _ = strconv.Atoi(m[3])
	}
	return threads
}

// waitsOf returns the sum of the waits of a thread.
func waitsOf(stacks map[string]int, thread string) (sum int) {
	for stack, us := range stacks {
		if strings.HasPrefix(stack, thread+";") {
			sum += us
		}
	}
	return sum
}

// checkWaiters checks the waits of testdata/waiters.c: each thread's time, and that no wait has the stack of another.
func checkWaiters(t *testing.T, stacks map[string]int, threads map[string]*waiter) {
	t.Helper()
	// The longest wait of each thread lasts seconds, so there was time to look at it.
	marks := []string{"[wait too short to look];[unknown]", "[preempted]"}
	for name, w := range threads {
		if sum := waitsOf(stacks, name); sum < w.least || sum > w.most {
			t.Errorf("%s waited for %d us, want %d to %d", name, sum, w.least, w.most)
		}
		found := false
		for stack := range stacks {
			rest, ours := strings.CutPrefix(stack, name+";")
			if !ours || slices.Contains(marks, rest) {
				found = found || ours && rest == w.reason
				continue
			}
			switch inside := strings.Contains(rest, ";"+w.function+";"); {
			case w.function == "":
				// Threads that share a CPU may wait in the function that starts them.
			case !inside && !strings.HasSuffix(rest, ";[unknown]"):
				t.Errorf("%s does not wait in %q", name, stack)
			case inside && strings.HasSuffix(rest, ";"+w.reason):
				found = true
			}
		}
		if !found {
			t.Errorf("got no wait of %s in %s for the reason %s: %v", name, w.function, w.reason, stacks)
		}
	}
}

// Without any capability, a user measures the waits of own commands and processes: their times as the program's own account
// and as BPF programs in the same run, and stacks of those that are long enough.
func TestWaitsWithoutCapabilities(t *testing.T) {
	testenv.OneKernel(t)
	run, workload := unprivileged(t)
	dir := public(t)
	waiters := duplicate(t, compile(t, "waiters.c", "waiters", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread"), dir)
	long := fmt.Sprint(testenv.Patience(2 * time.Second).Milliseconds())
	begins := func(t *testing.T, r result, line string) {
		t.Helper()
		if r.code != 0 || !strings.HasPrefix(r.stderr, "fulgur: "+line) || !strings.Contains(r.stderr, "\n  without CAP_BPF: waits by perf events, ") {
			t.Fatalf("exit code %d, want 0 and lines about waits: %s%s", r.code, r.stdout, r.stderr)
		}
	}
	t.Run("command", func(t *testing.T) {
		r := run(nil, "offcpu", "-f", "-o", "/dev/stderr", "--", waiters, long)
		threads := readWaiters(t, r.stdout)
		begins(t, r, "measures waits by perf events: ")
		var lines []string
		for line := range strings.Lines(r.stderr) {
			if regexp.MustCompile(`^\S+;.*\] \d+$`).MatchString(strings.TrimSuffix(line, "\n")) {
				lines = append(lines, line)
			}
		}
		checkWaiters(t, folded(t, strings.Join(lines, "")), threads)
	})
	t.Run("as by BPF programs", func(t *testing.T) {
		setpriv, err := exec.LookPath("setpriv")
		if err != nil {
			testenv.Skip(t, "needs setpriv of util-linux")
		}
		into := public(t)
		if err := os.Chown(into, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		own := filepath.Join(into, "own.folded")
		bin := filepath.Join(filepath.Dir(workload), filepath.Base(program(t)))
		r := fulgur(t, "offcpu", "-f", "-o", filepath.Join(into, "all.folded"), "--",
			setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", bin, "offcpu", "-f", "-o", own, "--", waiters, long)
		if strings.Contains(r.stderr, "BusyBox") {
			testenv.Skip(t, "needs setpriv of util-linux")
		}
		if r.code != 0 {
			t.Fatalf("exit code %d: %s", r.code, r.stderr)
		}
		threads := readWaiters(t, r.stdout)
		read := func(name string) map[string]int {
			text, err := os.ReadFile(filepath.Join(into, name))
			if err != nil {
				t.Fatal(err)
			}
			return folded(t, string(text))
		}
		mine, all := read("own.folded"), read("all.folded")
		checkWaiters(t, mine, threads)
		if strings.Contains(r.stderr, "missed") {
			t.Logf("the BPF programs missed waits: %s", r.stderr)
			return
		}
		for name := range threads {
			// The two measure at different points of a switch.
			got, want := waitsOf(mine, name), waitsOf(all, name)
			if near := want/20 + 5000; got < want-near || got > want+near {
				t.Errorf("%s waited for %d us, and for %d us by BPF programs", name, got, want)
			}
		}
	})
	t.Run("process", func(t *testing.T) {
		cmd := as(exec.Command(testenv.Tool(t, "sleep"), "1000"))
		start(t, cmd)
		pid := strconv.Itoa(cmd.Process.Pid)
		before := time.Now()
		r := run(nil, "offcpu", "-f", "-p", pid, "1")
		took := time.Since(before)
		begins(t, r, "measures waits by perf events: ")
		stacks := folded(t, r.stdout)
		// It waited all the time, from before the beginning until after the end.
		if sum := total(stacks); sum < 900_000 || time.Duration(sum)*time.Microsecond > took {
			t.Errorf("waited for %d us in %s, want nearly a second at least: %v", sum, took, stacks)
		}
		if n := count(stacks, "[sleep]"); n == 0 {
			t.Errorf("got no reason of the wait: %v", stacks)
		}
	})
	t.Run("limits", func(t *testing.T) {
		r := run(nil, "offcpu", "-f", "-m", "1000000", "--", testenv.Tool(t, "sh"), "-c", "sleep 0.2; sleep 1.2; :")
		begins(t, r, "measures waits by perf events: ")
		for stack := range folded(t, r.stdout) {
			if strings.Contains(stack, "[preempted]") {
				t.Errorf("got a short wait: %q", stack)
			}
		}
		if sum := total(folded(t, r.stdout)); sum < 2_000_000 {
			t.Errorf("the shell and its child waited for %d us in waits of a second, want 2400000: %s", sum, r.stdout)
		}
	})
	t.Run("recording", func(t *testing.T) {
		testenv.SlowInVM(t) // its looks come too late there
		into := public(t)
		if err := os.Chown(into, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(into, "fulgur.json.gz")
		r := run(nil, "record", "-F", "199", "-o", file, "--", waiters, long)
		begins(t, r, "records code and waits, but no disk requests and page faults, by perf events: ")
		if !strings.Contains(r.stderr, "\n  without CAP_BPF: no disk requests and page faults\n") {
			t.Errorf("the summary does not say what was left out: %s", r.stderr)
		}
		readRecording(t, file)
		folded := fulgur(t, "convert", "--format", "folded", "--value", "off-cpu", "-o", "-", file)
		if folded.code != 0 {
			t.Fatalf("exit code %d: %s", folded.code, folded.stderr)
		}
		for _, w := range readWaiters(t, r.stdout) {
			if w.function != "" && !strings.Contains(folded.stdout, ";"+w.function+";") {
				t.Errorf("the recording has no wait in %s:\n%s", w.function, folded.stdout)
			}
		}
		if r := fulgur(t, "report", file); r.code != 0 || !strings.Contains(r.stdout, "without CAP_BPF: waits by perf events") {
			t.Errorf("exit code %d; the report does not say how waits were measured: %s%s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("wall-clock time", func(t *testing.T) {
		r := run(nil, "profile", "--wall", "-F", "199", "-f", "--", workload)
		begins(t, r, "samples code and measures waits by perf events: ")
		if count(folded(t, r.stdout), ";fulgur/test/e2e.long") == 0 {
			t.Errorf("got no samples in the command's function: %s", r.stdout)
		}
	})
	t.Run("other privileges", func(t *testing.T) {
		if r := run(nil, "offcpu", "--via", "perf", "-f", "-p", "1", "0.1"); r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "needs CAP_") && !strings.Contains(r.stderr, "refused") {
			t.Errorf("exit code %d, want 1 and the needs: %s%s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("what perf events cannot measure", func(t *testing.T) {
		for _, args := range [][]string{
			{"offcpu", "1"}, {"offcpu", "--waker-stacks", "--", workload}, {"offcpu", "--state", "D", "--", workload}, {"offcpu", "-k", "--", workload},
			{"offcpu", "-K", "--", workload}, {"offcpu", "--by", "peer", "--", workload}, {"record", "--locks", "--", workload}, {"record", "-e", "sched:sched_switch", "--", workload},
		} {
			r := run(nil, append([]string{args[0], "--via", "perf", "-f"}, args[1:]...)...)
			if r.code != 2 || !strings.Contains(r.stderr, "perf events alone ") {
				t.Errorf("%v: exit code %d, want 2 and the reason: %s", args, r.code, r.stderr)
			}
		}
	})
}
