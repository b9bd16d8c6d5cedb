package e2e

import (
	"encoding/json"
	"errors"
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
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/doctor"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// nobody is a user without files.
const nobody = 65534

// public is a directory that everyone can enter, unlike testing.T's.
func public(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fulgur-e2e-public-") //nolint:usetesting // t.TempDir is below a folder for its owner alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// duplicate makes a copy of a program in dir that everyone may execute.
func duplicate(t *testing.T, program, dir string) string {
	t.Helper()
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, filepath.Base(program))
	if err := errors.Join(testenv.WriteProgram(path, content), os.Chmod(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}

// as makes a command run as nobody, with only the given capabilities in effect.
func as(cmd *exec.Cmd, capabilities ...uintptr) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
		AmbientCaps: capabilities,
	}
	cmd.Dir = "/"
	return cmd
}

// paranoid is the sysctl that decides whether CAP_PERFMON is enough for perf events.
const paranoid = "/proc/sys/kernel/perf_event_paranoid"

// setParanoid sets the sysctl until the end of the test.
func setParanoid(t *testing.T, value string) {
	t.Helper()
	before, err := os.ReadFile(paranoid)
	if err == nil {
		err = os.WriteFile(paranoid, []byte(value), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(paranoid, before, 0); err != nil {
			t.Error(err)
		}
	})
}

// unprivileged returns a function that runs fulgur as nobody, and a workload that nobody
// can execute.
func unprivileged(t *testing.T) (run func(capabilities []uintptr, args ...string) result, workload string) {
	t.Helper()
	run, _, workload = unprivilegedRuns(t)
	return run, workload
}

// allowMeasuring lets users other than root measure, as far as their capabilities permit.
func allowMeasuring(t *testing.T) {
	t.Helper()
	testenv.Root(t)
	unlimitLocked(t)
	if b, err := os.ReadFile(paranoid); err == nil && len(b) > 0 && b[0] > '2' { // Debian's default
		setParanoid(t, "2")
	}
}

// unprivilegedRuns is like unprivileged, and returns another function that runs fulgur until
// a process has worked for a while.
func unprivilegedRuns(t *testing.T) (run func(capabilities []uintptr, args ...string) result, sample func(pid string, capabilities []uintptr, args ...string) result, workload string) {
	t.Helper()
	allowMeasuring(t)
	dir := public(t)
	bin := duplicate(t, program(t), dir)
	unprivileged := func(capabilities []uintptr, args []string) *exec.Cmd {
		cmd := command(t, args...)
		cmd.Path = bin
		cmd.Env = append(os.Environ(), "E2E_WORKLOAD=1s")
		return as(cmd, capabilities...)
	}
	run = func(capabilities []uintptr, args ...string) result {
		t.Helper()
		return finish(t, unprivileged(capabilities, args))
	}
	sample = func(pid string, capabilities []uintptr, args ...string) result {
		t.Helper()
		return sampleWorkBy(t, unprivileged(capabilities, args), 300*time.Millisecond, pid)
	}
	return run, sample, duplicate(t, os.Args[0], dir)
}

// twoCapabilities are the capabilities that profiling needs.
var twoCapabilities = []uintptr{unix.CAP_BPF, unix.CAP_PERFMON}

// With only CAP_BPF and CAP_PERFMON, fulgur profiles the user's own processes as for
// root, and reports the limits for other processes.
func TestTwoCapabilities(t *testing.T) {
	testenv.OneKernel(t)
	run, workload := unprivileged(t)
	r := run(twoCapabilities, "profile", "-F", "997", "-f", "--", workload)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	if count(folded(t, r.stdout), ";fulgur/test/e2e.long") == 0 {
		t.Errorf("got no samples in the command's function:\n%s", r.stdout)
	}
	for _, want := range []string{
		"without CAP_SYS_PTRACE, functions in other users' processes",
		"without CAP_CHECKPOINT_RESTORE, functions in files that this user cannot read, or that were deleted",
		"without CAP_DAC_READ_SEARCH, functions in files that this user cannot read",
		"sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_checkpoint_restore,cap_dac_read_search,cap_syslog=ep ",
	} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("does not say %q:\n%s", want, r.stderr)
		}
	}
}

// With the two capabilities, another user's process is sampled and its kernel
// functions are named; functions in files that cannot be opened are not, which is
// reported.
func TestTwoCapabilitiesOtherUser(t *testing.T) {
	_, sample, _ := unprivilegedRuns(t)
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	pid := victim(t, duplicate(t, os.Args[0], closed), "E2E_WORKLOAD=shares")
	r := sample(pid, twoCapabilities, "profile", "-p", pid, "-F", "999", "-f")
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	stacks := folded(t, r.stdout)
	if len(stacks) == 0 {
		t.Fatalf("nothing was sampled: %s", r.stderr)
	}
	if n := count(stacks, ";fulgur/test/e2e.long"); n != 0 {
		t.Errorf("%d samples are in a function whose file cannot be opened, want 0", n)
	}
	if !regexp.MustCompile(`samples? (in|with) (an )?unnamed`).MatchString(r.stderr) {
		t.Errorf("standard error = %s, want a count of unnamed samples", r.stderr)
	}
	copying := exec.Command(testenv.Tool(t, "dd"), "if=/dev/zero", "of=/dev/null") // in the kernel
	if err := copying.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = copying.Process.Kill()
		_ = copying.Wait()
	})
	r = sample(strconv.Itoa(copying.Process.Pid), twoCapabilities, "profile", "-K", "-F", "199", "-f")
	named := regexp.MustCompile(`;finish_task_switch|_sysvec_|entry_|el0|;ret_from_fork`)
	if want := namesKernel(t); r.code != 0 || named.MatchString(r.stdout) != want {
		t.Errorf("exit code %d, want 0; names of the kernel: want %t:\n%s%s", r.code, want, r.stdout, r.stderr)
	}
}

// namesKernel reports whether functions of the kernel have names without CAP_SYSLOG, which before
// Linux 5.17 protects /proc/kallsyms.
func namesKernel(t *testing.T) bool {
	t.Helper()
	return !testenv.KernelBefore(t, 5, 17)
}

const waitForChild = "[wait for child]"

// rightsCommands are the commands that measure, with the expected output for a shell that
// works and waits, with the two capabilities.
var rightsCommands = []struct {
	name string
	args []string
	want string // part of the output
}{
	{"profile", []string{"profile", "-F", "997", "-f"}, "sh;"},
	{"wall", []string{"profile", "--wall", "-f"}, waitForChild},
	{"offcpu", []string{"offcpu", "-f"}, waitForChild},
	{"offcpu wakers", []string{"offcpu", "--waker-stacks", "-f"}, "[woken by]"},
	{"faults", []string{"faults", "-f"}, "sh;"},
	{"blockio", []string{"blockio", "-f"}, ""}, // it may have made no disk requests
	{"bolt basic", []string{"bolt", "--basic"}, "\nS "},
}

// shellWork returns a script that keeps a shell busy for a fraction of a second, and makes it
// wait for a child.
func shellWork() string {
	rounds := 50000
	if testenv.InVM() {
		rounds /= 5 // emulated
	}
	return fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i + 1)); done; sleep 0.1; :`, rounds)
}

// Each command works with the two capabilities, and reports its limits.
func TestTwoCapabilitiesCommands(t *testing.T) {
	run, _ := unprivileged(t)
	shell := testenv.Tool(t, "sh")
	for _, test := range rightsCommands {
		t.Run(test.name, func(t *testing.T) {
			r := run(twoCapabilities, append(test.args, "--", shell, "-c", shellWork())...)
			want := test.want
			if want == waitForChild && !namesKernel(t) {
				want = "[unknown]" // the reasons of waits are functions of the kernel
			}
			if r.code != 0 || !strings.Contains("\n"+r.stdout, want) {
				t.Errorf("exit code %d, want 0; no %q in:\n%s\n%s", r.code, want, r.stdout, r.stderr)
			}
			once(t, r.stderr, "to avoid these losses: run fulgur with sudo, or run once: sudo setcap cap_bpf,cap_perfmon,")
		})
	}
}

// With fewer capabilities, no command measures, and each reports the missing ones.
func TestTooFewCapabilitiesCommands(t *testing.T) {
	run, _ := unprivileged(t)
	for _, test := range rightsCommands {
		t.Run(test.name, func(t *testing.T) {
			args := slices.Clone(test.args)
			switch test.name {
			case "profile", "wall", "offcpu":
				args = append(args, "--via", "bpf") // otherwise, it measures by perf events alone
			}
			r := run([]uintptr{unix.CAP_PERFMON}, append(args, "--", testenv.Tool(t, "sh"), "-c", "echo started")...)
			if !strings.Contains(r.stderr, "\nWithout privileges, fulgur profile, top, offcpu and record measure code and waits of your own processes (-p) and commands.\n") {
				t.Errorf("standard error = %q, want what works", r.stderr)
			}
			if r.code != 1 || r.stdout != "" || !strings.HasPrefix(r.stderr, "fulgur: profiling needs CAP_BPF: run fulgur with sudo, or run once: sudo setcap cap_bpf,") {
				t.Errorf("exit code %d, want 1; standard output %q, standard error %q", r.code, r.stdout, r.stderr)
			}
		})
	}
}

// With fewer capabilities, nothing is sampled, and the missing ones are reported.
func TestTooFewCapabilities(t *testing.T) {
	run, workload := unprivileged(t)
	for name, test := range map[string]struct {
		capabilities []uintptr
		missing      string
	}{
		"none":        {nil, "CAP_BPF and CAP_PERFMON"},
		"CAP_BPF":     {[]uintptr{unix.CAP_BPF}, "CAP_PERFMON"},
		"CAP_PERFMON": {[]uintptr{unix.CAP_PERFMON}, "CAP_BPF"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(test.capabilities, "profile", "--via", "bpf", "-f", "--", workload)
			want := "fulgur: profiling needs " + test.missing + ": run fulgur with sudo, or run once: sudo setcap cap_bpf,cap_perfmon,"
			if r.code != 1 || r.stdout != "" || !strings.HasPrefix(r.stderr, want) {
				t.Errorf("exit code %d, standard output %q, standard error %q; want 1, nothing and %q", r.code, r.stdout, r.stderr, want)
			}
			if !strings.HasSuffix(r.stderr, "\nRun fulgur doctor to see what works on this machine.\n") {
				t.Errorf("standard error = %q, want a hint at fulgur doctor", r.stderr)
			}
		})
	}
}

// Without any capability, a user profiles the user code of their own commands and processes, with whole stacks.
func TestWithoutCapabilities(t *testing.T) {
	testenv.OneKernel(t)
	run, sample, workload := unprivilegedRuns(t)
	dir := public(t)
	profile := func(t *testing.T, r result) map[string]int {
		t.Helper()
		if r.code != 0 || !strings.HasPrefix(r.stderr, "fulgur: samples user code only, by perf events: ") {
			t.Fatalf("exit code %d, want 0 and a line about perf events: %s", r.code, r.stderr)
		}
		return folded(t, r.stdout)
	}
	t.Run("known paths", func(t *testing.T) {
		program := duplicate(t, compile(t, "paths.c", "paths", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"), dir)
		found := map[string]int{}
		r := run(nil, "profile", "-F", "997", "-f", "--", program, "200")
		for stack, n := range profile(t, r) {
			if frames := strings.Split(stack, ";"); frames[0] == "paths" {
				found[onPaths(frames[1:])] += n
			}
		}
		// The rest are the first steps of the dynamic loader.
		if all := total(found); all == 0 || known(found) < stat.Binomial(all, 0.98).Low {
			t.Errorf("%d of %d samples are on a path of the program, want nearly all: %v\n%s", known(found), all, found, r.stderr)
		}
	})
	t.Run("generated code", func(t *testing.T) {
		program := duplicate(t, compile(t, "generated.c", "generated", "-O2", "-fomit-frame-pointer"), dir)
		checkGenerated(t, profile(t, run(nil, "profile", "-F", "997", "-f", "--", program)))
	})
	t.Run("process", func(t *testing.T) {
		cmd := as(exec.Command(workload))
		cmd.Env = append(os.Environ(), "E2E_WORKLOAD=shares")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		pid := strconv.Itoa(cmd.Process.Pid)
		stacks := profile(t, sample(pid, nil, "profile", "-p", pid, "-F", "199", "-f"))
		if n := count(stacks, ";fulgur/test/e2e.long"); n == 0 {
			t.Errorf("got no samples in the function of the process: %v", stacks)
		}
	})
	t.Run("kernel time", func(t *testing.T) {
		r := run(nil, "profile", "-F", "997", "-f", "--", testenv.Tool(t, "dd"), "if=/dev/zero", "of=/dev/null", "bs=1M", "count=2000")
		profile(t, r)
		said := regexp.MustCompile(`user code only; (\S+) s of (\S+) s of CPU time, in the kernel, was not sampled`).FindStringSubmatch(r.stderr)
		if said == nil {
			t.Fatalf("does not say how much of the time was in the kernel: %s", r.stderr)
		}
		kernel, err := strconv.ParseFloat(said[1], 64)
		all, err2 := strconv.ParseFloat(said[2], 64)
		if err := errors.Join(err, err2); err != nil || kernel < all/2 || kernel > all {
			t.Errorf("got %s s in the kernel of %s s, want most: %v", said[1], said[2], err)
		}
	})
	t.Run("kernel functions", func(t *testing.T) { // as at a lower perf_event_paranoid
		r := run([]uintptr{unix.CAP_PERFMON, unix.CAP_SYSLOG}, "profile", "-F", "997", "-f", "--", testenv.Tool(t, "dd"), "if=/dev/zero", "of=/dev/null", "bs=1M", "count=2000")
		if r.code != 0 || !strings.HasPrefix(r.stderr, "fulgur: samples by perf events, without CAP_BPF\n") || strings.Contains(r.stderr, "in the kernel, was not sampled") {
			t.Errorf("exit code %d, want 0 and a line about perf events: %s", r.code, r.stderr)
		}
		if stacks := folded(t, r.stdout); count(stacks, ";vfs_read") == 0 {
			t.Errorf("got no samples in the kernel's function: %v", stacks)
		}
	})
	t.Run("in the files", func(t *testing.T) {
		r := run(nil, "profile", "-F", "997", "--format", "pprof", "--", workload)
		if r.code != 0 {
			t.Fatalf("exit code %d: %s", r.code, r.stderr)
		}
		file := filepath.Join(dir, "profile.pb.gz")
		if err := os.WriteFile(file, []byte(r.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{"html", "firefox", "pprof"} {
			if format != "pprof" { // that is read above
				next := filepath.Join(dir, "profile."+format)
				if r := fulgur(t, "convert", "--format", format, "-o", next, file); r.code != 0 {
					t.Fatalf("%s: exit code %d: %s", format, r.code, r.stderr)
				}
				file = next
			}
			if r := fulgur(t, "report", file); r.code != 0 || !strings.Contains(r.stdout, "without CAP_BPF: user code only") {
				t.Errorf("%s: exit code %d; the report does not say what was left out: %s%s", format, r.code, r.stdout, r.stderr)
			}
		}
	})
	t.Run("other privileges", func(t *testing.T) {
		// The kernel handles a program that its user may not read like a set-user-ID program, which some file systems forbid.
		program := duplicate(t, compile(t, "paths.c", "paths", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"), public(t))
		if err := os.Chmod(program, 0o711); err != nil {
			t.Fatal(err)
		}
		r := run(nil, "profile", "-F", "997", "-f", "--", testenv.Tool(t, "sh"), "-c", program+" 100; "+shellWork())
		if n := count(profile(t, r), "paths"); n != 0 {
			t.Errorf("got %d samples of a program that the kernel does not sample", n)
		}
		if said := regexp.MustCompile(`process \d+ and its children were not sampled from \d+\.\d\d s on: it ran paths, which has other privileges`); !said.MatchString(r.stderr) {
			t.Errorf("does not say that a process was no longer sampled: %s", r.stderr)
		}
	})
	t.Run("too few descriptors", func(t *testing.T) {
		cmd := as(exec.Command(duplicate(t, compile(t, "idlers.c", "idlers", "-pthread"), dir)))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		pid := strconv.Itoa(cmd.Process.Pid)
		awaitWork(t, pid, 100*time.Millisecond)
		cpus, err := perfevent.OnlineCPUs()
		if err != nil {
			t.Fatal(err)
		}
		// Room for the events of 10 of the 41 threads, but at most 3/8 of the files may be events.
		limited := as(command(t, "-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(10*len(cpus)*8/3+8),
			filepath.Join(filepath.Dir(workload), filepath.Base(program(t))), "profile", "-p", pid, "-F", "199", "-f"))
		limited.Path, limited.Args[0] = testenv.Tool(t, "sh"), "sh" // busybox goes by this name
		r := sampleWorkBy(t, limited, 300*time.Millisecond, pid)
		if n := count(profile(t, r), ";work"); n == 0 {
			t.Errorf("got no samples of the busiest thread: %s", r.stdout)
		}
		if !regexp.MustCompile(`\n  \d+ of 41 threads were not measured: `).MatchString(r.stderr) {
			t.Errorf("does not say that threads were not measured: %s", r.stderr)
		}
	})
	t.Run("another user", func(t *testing.T) {
		pid := strconv.Itoa(load(t, "shares").Process.Pid)
		r := run(nil, "profile", "-f", "-p", pid)
		if r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "needs CAP_BPF and CAP_PERFMON") || strings.Contains(r.stderr, "by perf events") {
			t.Errorf("exit code %d, want 1 and a remedy: %s%s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("whole machine", func(t *testing.T) {
		if r := run(nil, "profile", "-f", "1"); r.code != 1 || !strings.HasPrefix(r.stderr, "fulgur: profiling needs CAP_BPF and CAP_PERFMON") {
			t.Errorf("exit code %d, want 1 and the needs: %s", r.code, r.stderr)
		}
		if r := run(nil, "profile", "--via", "perf", "-f", "1"); r.code != 2 || !strings.Contains(r.stderr, "only your own processes") {
			t.Errorf("exit code %d, want 2 and the reason: %s", r.code, r.stderr)
		}
	})
}

// Debian's kernels require more at a high perf_event_paranoid. With other kernels,
// everything works.
func TestParanoid(t *testing.T) {
	testenv.VM(t)
	run, workload := unprivileged(t)
	setParanoid(t, "3")
	r := run(twoCapabilities, "profile", "-F", "199", "-f", "--", workload)
	if r.code == 0 {
		t.Log("this kernel is not Debian's")
		return
	}
	if !strings.Contains(r.stderr, "sysctl kernel.perf_event_paranoid is 3") || !strings.Contains(r.stderr, "sudo sysctl kernel.perf_event_paranoid=2") {
		t.Errorf("standard error = %s, want the sysctl and its remedy", r.stderr)
	}
	if r := run(twoCapabilities, "doctor"); r.code != 1 || !strings.Contains(r.stdout, "refused, see perf_event_paranoid") {
		t.Errorf("exit code %d, want 1:\n%s", r.code, r.stdout)
	}
}

// If /proc hides other users' processes, a missing process may be hidden. fulgur reports
// this, with the remedy.
func TestHidePID(t *testing.T) {
	testenv.OneKernel(t)
	unshare := testenv.Tool(t, "unshare")
	_, workload := unprivileged(t)
	pid := strconv.Itoa(load(t, "shares").Process.Pid)
	const script = `mount -t proc -o hidepid=2 proc /proc &&
		exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all,+bpf,+perfmon --ambient-caps=-all,+bpf,+perfmon "$0" profile -q -p "$1"`
	// Use a separate /proc, so that the machine's stays unchanged.
	fulgur := filepath.Join(filepath.Dir(workload), filepath.Base(program(t)))
	cmd := exec.Command(unshare, "--mount", "--propagation", "private", "sh", "-c", script, fulgur, pid)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "BusyBox") {
		testenv.Skip(t, "needs setpriv of util-linux")
	}
	want := "fulgur: process " + pid + ": not found: /proc is mounted with hidepid: sudo mount -o remount,hidepid=0 /proc\n"
	if err == nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}

// The command that fulgur suggests works.
func TestSetcapLine(t *testing.T) {
	setcap := testenv.Tool(t, "setcap")
	run, sample, workload := unprivilegedRuns(t)
	r := run(nil, "profile", "--via", "bpf", "-f", "--", workload)
	line := regexp.MustCompile(`sudo setcap (\S+) (\S+)\n`).FindStringSubmatch(r.stderr)
	if line == nil {
		t.Fatalf("standard error = %s, want a command to paste", r.stderr)
	}
	if out, err := exec.Command(setcap, line[1:]...).CombinedOutput(); err != nil {
		testenv.Skip(t, "needs a file system with capabilities: %v: %s", err, out)
	}
	r = run(nil, "profile", "-F", "997", "-f", "--", workload)
	if r.code != 0 || strings.Contains(r.stderr, "CAP_") {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	if count(folded(t, r.stdout), ";fulgur/test/e2e.long") == 0 {
		t.Errorf("got no samples in the command's function:\n%s", r.stdout)
	}
	pid := strconv.Itoa(load(t, "shares").Process.Pid)
	r = sample(pid, nil, "profile", "-p", pid, "-F", "199", "-f")
	if n := count(folded(t, r.stdout), ";fulgur/test/e2e.long"); r.code != 0 || n == 0 {
		t.Errorf("exit code %d, want 0; %d samples are in the other user's function, want some:\n%s", r.code, n, r.stderr)
	}
}

// The doctor and fulgur profile agree whether profiling works, and so does the doctor's
// exit code.
func TestDoctor(t *testing.T) {
	run, workload := unprivileged(t)
	t.Run("no capabilities", func(t *testing.T) { testDoctor(t, run, workload, nil, doctor.No, "cap_bpf cap_perfmon") })
	t.Run("two capabilities", func(t *testing.T) {
		testDoctor(t, run, workload, twoCapabilities, doctor.Partly, "cap_sys_ptrace cap_checkpoint_restore cap_dac_read_search")
	})
}

func TestDoctorLockedMemory(t *testing.T) {
	testenv.EveryKernel(t)
	if !countsLocked(t) {
		testenv.Unsupported(t, "needs Linux before 5.11, which counts BPF maps as locked memory")
	}
	run, workload := unprivileged(t)
	limitLocked(t, 64<<10)
	testDoctor(t, run, workload, twoCapabilities, doctor.No, "memlock")
}

// testDoctor runs the doctor with capabilities. It checks its verdict on profiles, the first
// reason for it, and that a profile then works or fails.
func testDoctor(t *testing.T, run func([]uintptr, ...string) result, workload string, capabilities []uintptr, works doctor.Works, because string) {
	t.Helper()
	r := run(capabilities, "doctor", "--json")
	var report doctor.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("%v: %s%s", err, r.stdout, r.stderr)
	}
	profile := report.Commands[0]
	if profile.Works != works || !strings.HasPrefix(strings.Join(profile.Because, " "), because) {
		t.Errorf("%+v, want %s because of %s", profile, works, because)
	}
	if (r.code == 0) != (works != doctor.No) {
		t.Errorf("exit code %d, want 0 only if profiling works", r.code)
	}
	if got := run(capabilities, "profile", "--via", "bpf", "-q", "-f", "--", workload); (got.code == 0) != (r.code == 0) {
		t.Errorf("exit code of the doctor %d, of a profile %d, want both 0 or none: %s", r.code, got.code, got.stderr)
	}
	for via, command := range map[string]doctor.Command{"perf": doctor.ProfilePerf, "ptrace": doctor.ProfilePtrace} {
		i := slices.IndexFunc(report.Commands, func(v doctor.Verdict) bool { return v.Command == command })
		if got := run(capabilities, "profile", "--via", via, "-q", "-f", "--", workload); (got.code == 0) != (report.Commands[i].Works != doctor.No) {
			t.Errorf("%+v, and the exit code of a profile is %d: %s", report.Commands[i], got.code, got.stderr)
		}
	}
}

// countsLocked reports whether BPF maps count against the limit on locked memory, which fulgur
// cannot raise without CAP_SYS_RESOURCE.
func countsLocked(t *testing.T) bool {
	t.Helper()
	return testenv.KernelBefore(t, 5, 11)
}

// unlimitLocked lifts the limit, if BPF maps count against it, for commands that the test starts.
func unlimitLocked(t *testing.T) {
	t.Helper()
	if countsLocked(t) {
		limitLocked(t, unix.RLIM_INFINITY)
	}
}

// limitLocked limits the locked memory of commands that the test starts.
func limitLocked(t *testing.T, bytes uint64) {
	t.Helper()
	var original unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &original); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: bytes, Max: bytes}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &original); err != nil {
			t.Error(err)
		}
	})
}

// Root's report is text, without colors if standard output is not a terminal.
func TestDoctorText(t *testing.T) {
	testenv.Root(t)
	r := fulgur(t, "doctor")
	if r.code != 0 || r.stderr != "" {
		t.Errorf("exit code %d, want 0; standard error %s", r.code, r.stderr)
	}
	for _, want := range []string{"\nThis process\n", "\n  ok    CAP_BPF  ", "\nKernel\n", "\nTrials\n  ok    perf_event program         works\n", "\nCommands\n"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in:\n%s", want, r.stdout)
		}
	}
	if strings.Contains(r.stdout, "\x1b") {
		t.Errorf("got colors, want none:\n%q", r.stdout)
	}
}
