// Package e2e tests fulgur as users run it: the built binary, its command line, its
// output and its exit code.
package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// result is the outcome of a run of fulgur.
type result struct {
	stdout, stderr string
	code           int
}

func fulgur(t *testing.T, args ...string) result {
	t.Helper()
	return finish(t, command(t, args...))
}

// command returns a command that runs fulgur. If its children run this test binary, they
// are workloads.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := testenv.Command(t, program(t), inFull(args)...)
	cmd.Stdout, cmd.Stderr = new(bytes.Buffer), new(bytes.Buffer)
	return cmd
}

// summarizing are the commands with a summary.
var summarizing = []string{"profile", "offcpu", "runq", "blockio", "faults", "softirq", "count", "latency", "slow", "locks", "alloc", "record"}

// inFull asks for a summary with all losses and notes, unless the arguments choose another one: tests
// look at them. TestShortSummary tests the short one.
func inFull(args []string) []string {
	if len(args) == 0 || !slices.Contains(summarizing, args[0]) {
		return args
	}
	for _, arg := range args[1:] {
		if arg == "--" {
			break
		}
		if slices.Contains([]string{"-q", "--quiet", "-v", "--verbose", "--verbose=false"}, arg) {
			return args
		}
	}
	return slices.Insert(slices.Clone(args), 1, "--verbose")
}

func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var err error
	if cmd.Process == nil {
		err = cmd.Run()
	} else {
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.Stdout.(*bytes.Buffer).String(), cmd.Stderr.(*bytes.Buffer).String(), cmd.ProcessState.ExitCode()}
}

// target starts a workload of this test binary, and kills it when the test ends.
func load(t *testing.T, mode string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "E2E_WORKLOAD="+mode)
	startTarget(t, cmd)
	return cmd
}

// folded parses folded stacks into counts by stack.
func folded(t *testing.T, s string) map[string]int {
	t.Helper()
	stacks := map[string]int{}
	for line := range strings.Lines(s) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "# ") { // the unit
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		n, err := strconv.Atoi(line[i+1:])
		if i < 0 || err != nil {
			t.Fatalf("not a folded line: %q", line)
		}
		stacks[line[:i]] += n
	}
	return stacks
}

// count returns the number of samples with frame in the stack.
func count(stacks map[string]int, frame string) (with int) {
	for s, n := range stacks {
		if strings.Contains(s, frame) {
			with += n
		}
	}
	return with
}

// checkTask checks that there are samples, all of them of the given command.
func checkTask(t *testing.T, stacks map[string]int, comm string) {
	t.Helper()
	if len(stacks) == 0 {
		t.Errorf("got no samples of %s", comm)
	}
	for stack, n := range stacks {
		if !strings.HasPrefix(stack, comm+";") {
			t.Errorf("%d samples have the stack %q, want one of %s", n, stack, comm)
		}
	}
}

// checkShares checks stacks of a program that calls workload: it has three times as many samples
// in long as in short.
func checkShares(t *testing.T, stacks map[string]int) {
	t.Helper()
	checkNumbers(t, count(stacks, ";fulgur/test/e2e.TestMain;"), count(stacks, ";fulgur/test/e2e.long"), count(stacks, ";fulgur/test/e2e.short"))
}

// checkNumbers is like checkShares, with the numbers of samples in TestMain, which calls
// workload, and in long and short. The rest of the program is Go's runtime and the kernel, whose time
// depends on the machine.
func checkNumbers(t *testing.T, all, long, short int) {
	t.Helper()
	t.Logf("%d samples in TestMain, %d in long, %d in short", all, long, short)
	// The rest of workload takes less than a tenth of the time, even in an emulated machine.
	if least := max(1, stat.Binomial(all, 0.9).Low); long+short < least {
		t.Errorf("%d of %d samples are in long or short, want at least %d", long+short, all, least)
	}
	stat.Binomial(long+short, 0.75).Check(t, "samples in long", long)
}

// A program that spends three times as long in one function as in another has samples in
// that ratio.
func TestProfileShares(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	pid := strconv.Itoa(load(t, "shares").Process.Pid)
	r := sampleWork(t, 2*time.Second, []string{pid}, "profile", "-p", pid, "-F", "997", "-f")
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	checkShares(t, folded(t, r.stdout))
	if !strings.Contains(r.stderr, "pid "+pid) {
		t.Errorf("got a summary without the target:\n%s", r.stderr)
	}
}

// A launched command is sampled with its children, and fulgur exits with its code.
func TestProfileCommand(t *testing.T) {
	testenv.Root(t)
	out := filepath.Join(t.TempDir(), "out.folded")
	cmd := command(t, "profile", "-F", "997", "-o", out, "--", testenv.Tool(t, "sh"), "-c", os.Args[0]+"; exit 7")
	// CPU time, long enough to load the unwind tables of a new program.
	cmd.Env = append(os.Environ(), "E2E_WORKLOAD="+testenv.Patience(time.Second).String())
	r := finish(t, cmd)
	if r.code != 7 {
		t.Fatalf("exit code %d, want the command's 7: %s", r.code, r.stderr)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	checkShares(t, folded(t, string(b)))
}

// Ctrl-C ends the measurement and writes the result so far.
func TestProfileInterrupted(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			pid := strconv.Itoa(load(t, "shares").Process.Pid)
			out := filepath.Join(t.TempDir(), "out.pb.gz")
			cmd := command(t, "profile", "-p", pid, "-o", out)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			awaitSampling(t, cmd)
			awaitWork(t, pid, 100*time.Millisecond)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			r := finish(t, cmd)
			if r.code != 0 {
				t.Errorf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			if st, err := os.Stat(out); err != nil || st.Size() == 0 {
				t.Errorf("profile: %v, %v, want a file that is not empty", st, err)
			}
		})
	}
}

// The target's exit ends the profile.
func TestProfileTargetExits(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	victim := load(t, "shares")
	cmd := command(t, "profile", "-p", strconv.Itoa(victim.Process.Pid), "-F", "997", "-f", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, cmd)
	awaitWork(t, strconv.Itoa(victim.Process.Pid), 200*time.Millisecond)
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // killed
	r := finish(t, cmd)
	if r.code != 0 || len(folded(t, r.stdout)) == 0 {
		t.Errorf("exit code %d, want 0; output %q: %s", r.code, r.stdout, r.stderr)
	}
}

// Bad input results in a message with the problem and the cause, and an exit code, and
// leaves no file.
func TestProfileBadInput(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	for _, test := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"-p", "4194305", "1"}, 1, []string{"4194305"}},
		{[]string{"-p", "2", "1"}, 1, []string{"kernel thread", "kthreadd"}},
		{[]string{"-F", "0", "1"}, 2, []string{"frequency"}},
		{[]string{"-F", "99999999", "1"}, 2, []string{"kernel.perf_event_max_sample_rate"}},
		{[]string{"--max-depth", "1000", "1"}, 2, []string{"above the maximum of 127 frames"}},
		{[]string{"-e", "no-such-event", "1"}, 2, []string{"no-such-event"}},
		{[]string{"-U", "-K", "1"}, 2, []string{"user", "kernel"}},
		{[]string{"--cgroup", "/no/such/group", "1"}, 1, []string{"/no/such/group"}},
		{[]string{"--", "no-such-command"}, 127, []string{"no-such-command"}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			dir := t.TempDir()
			args := append([]string{"profile", "-o", filepath.Join(dir, "out.folded")}, test.args...)
			r := fulgur(t, args...)
			if r.code != test.code {
				t.Errorf("exit code %d, want %d: %s", r.code, test.code, r.stderr)
			}
			for _, want := range test.want {
				if !strings.Contains(r.stderr, want) {
					t.Errorf("no %q in: %s", want, r.stderr)
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("files left behind: %v, %v, want none", left, err)
			}
		})
	}
}

// A full disk and a missing directory are reported, and no file is left.
func TestProfileUnwritable(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	pid := strconv.Itoa(load(t, "shares").Process.Pid)
	for out, want := range map[string]string{
		"/dev/full":                     "no space left on device",
		"/no/such/directory/out.folded": "no such file or directory",
	} {
		args := []string{"profile", "-p", pid, "-F", "997", "-o", out}
		var r result
		if out == "/dev/full" {
			r = sampleWork(t, 50*time.Millisecond, []string{pid}, args...)
		} else {
			r = fulgur(t, append(args, "0.2")...) // exits at once
		}
		if r.code != 1 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit code %d, want 1; %s", out, r.code, r.stderr)
		}
	}
}
