package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
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

	"fulgur/internal/capture/target"
	"fulgur/internal/testenv"
)

// boltable compiles testdata/branches.c for llvm-bolt.
func boltable(t *testing.T, name string, flags ...string) string {
	t.Helper()
	return compile(t, "branches.c", name, append([]string{"-O2", "-Wl,--emit-relocs", "-Wl,--build-id"}, flags...)...)
}

// running starts a program that is killed when the test ends.
func running(t *testing.T, argv ...string) (pid string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	startTarget(t, cmd)
	return strconv.Itoa(cmd.Process.Pid)
}

// working is like running, for a program that works in one of its own functions, and waits until it
// does: the dynamic loader takes less time.
func working(t *testing.T, program string) (pid string) {
	t.Helper()
	pid = running(t, program)
	awaitWork(t, pid, 100*time.Millisecond)
	return pid
}

// boltSummary holds the fields of --stats json that tests read.
type boltSummary struct {
	Samples, Records uint64
	InsideShare      float64 `json:"inside_share"`
	Stepping         struct {
		Threads, Bursts uint64
	}
	Counting struct {
		Windows, Outcomes uint64
		Breakpoints       struct{ Windows uint64 }
	}
	Refused  []string
	Binaries []struct {
		Binary, Profile string
		BuildID         string `json:"build_id"`
		Branches        uint64
		Taken           float64 `json:"taken_by_executable_bytes"`
		Optimized       string
		Findings        []string
		Comparison      struct{ Verdict, Reason string }
		Warnings        []string
	}
	Warnings []string
}

// stepFast are the flags for a quick profile of the test's own processes.
var stepFast = []string{"--branches", "stepping", "--max-overhead", "300", "--stats", "json"}

// bolt runs fulgur bolt, checks its exit code, and returns its summary, which is the last
// line on standard error.
func bolt(t *testing.T, code int, args ...string) boltSummary {
	t.Helper()
	return summaryOf(t, code, fulgur(t, append([]string{"bolt"}, args...)...))
}

// boltUntil repeats bolt with more and more time until enough accepts the summary. On a busy
// machine, fulgur or its target may have no CPU for a while.
func boltUntil(t *testing.T, enough func(boltSummary) bool, args ...string) boltSummary {
	t.Helper()
	for seconds := 1; ; seconds *= 2 {
		s := bolt(t, 0, append(slices.Clone(args), strconv.Itoa(seconds))...)
		if enough(s) || seconds > 30 {
			return s
		}
	}
}

// stepped returns a condition for boltUntil: records of the given number of threads.
func stepped(threads uint64) func(boltSummary) bool {
	return func(s boltSummary) bool {
		return len(s.Binaries) == 1 && s.Records > 0 && s.Stepping.Threads >= threads
	}
}

func summaryOf(t *testing.T, code int, r result) boltSummary {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d: %s", r.code, code, r.stderr)
	}
	text := strings.TrimSpace(r.stderr)
	var s boltSummary
	if err := json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), &s); err != nil {
		t.Fatalf("%v: %s", err, r.stderr)
	}
	return s
}

var misfits = regexp.MustCompile(`(?:traces mismatching disassembled function contents|out of range traces involving unknown regions): [1-9].*`)

// accepted converts a profile with perf2bolt, which must accept all of it for the
// binary.
func accepted(t *testing.T, version int, binary, profile string, flags ...string) {
	t.Helper()
	perf2bolt := testenv.Tool(t, fmt.Sprintf("/usr/lib/llvm-%d/bin/perf2bolt", version))
	out := filepath.Join(t.TempDir(), "fdata")
	b, err := exec.Command(perf2bolt, append(flags, "--pa", "-p", profile, "-o", out, binary)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", perf2bolt, err, b)
	}
	if m := misfits.Find(b); m != nil {
		t.Errorf("perf2bolt of LLVM %d reports misfits: %s", version, m)
	}
	if !strings.Contains(read(t, out), " work") && !strings.HasPrefix(read(t, out), "no_lbr") {
		t.Errorf("perf2bolt of LLVM %d converted the profile to\n%s\nwant work, or no branches", version, read(t, out))
	}
}

// Every kind of program is profiled until the profile is sufficient, and perf2bolt
// accepts the profile.
func TestBoltStepping(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	for name, flags := range map[string][]string{"pie": nil, "no-pie": {"-no-pie"}, "static-pie": {"-static-pie", "-Wl,--gc-sections"}} {
		t.Run(name, func(t *testing.T) {
			if name != "pie" {
				testenv.Long(t)
			}
			program := boltable(t, "branches", flags...)
			pid := working(t, program)
			out := filepath.Join(t.TempDir(), "out.preagg")
			args := append([]string{"-p", pid, "-o", out}, stepFast...)
			var s boltSummary
			if name == "static-pie" { // all of libc takes too long
				s = boltUntil(t, stepped(1), args...)
			} else {
				s = bolt(t, 0, args...)
			}
			if len(s.Binaries) != 1 || s.Records == 0 || s.Stepping.Threads != 1 {
				t.Fatalf("summary = %+v, want one binary, records and one stepped thread", s)
			}
			if b := s.Binaries[0]; name != "static-pie" && b.Taken < 1 || s.InsideShare != 1 {
				t.Errorf("summary = %+v, want taken branches, all inside", s)
			}
			accepted(t, 22, program, out)
			if name != "pie" {
				return
			}
			boltUntil(t, stepped(1), append(args, "--llvm", "16")...)
			for _, version := range []int{16, 19, 22} {
				accepted(t, version, program, out)
			}
		})
	}
}

// Jumps are counted in programs at fixed and at random addresses, and perf2bolt accepts
// the profile.
func TestBoltCounting(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	for _, test := range []struct {
		name, branches string
		version        int
		flags          []string
	}{
		{"pie", "counting", 22, nil},
		{"no-pie", "counting", 16, []string{"-no-pie"}},
		{"pie, breakpoints", "breakpoints", 16, nil},
		{"no-pie, breakpoints", "breakpoints", 22, []string{"-no-pie"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.branches == "breakpoints" {
				testenv.Breakpoints(t)
			}
			program := boltable(t, "branches", test.flags...)
			pid := running(t, program)
			out := filepath.Join(t.TempDir(), "out.preagg")
			version := test.version
			args := []string{"--branches", test.branches, "--max-overhead", "300", "--llvm", strconv.Itoa(version), "--stats", "json", "-p", pid, "-o", out}
			if r := fulgur(t, append([]string{"bolt", "0.1"}, args...)...); r.code != 0 && strings.Contains(r.stderr, "cannot count jumps here") {
				testenv.Unsupported(t, "%s", r.stderr)
			}
			s := boltUntil(t, func(s boltSummary) bool { return s.Counting.Outcomes > 0 && s.Records > 0 }, args...)
			if len(s.Binaries) != 1 || s.Counting.Windows+s.Counting.Breakpoints.Windows == 0 || s.Counting.Outcomes == 0 || s.Records == 0 {
				t.Fatalf("summary = %+v, want one binary, windows, outcomes and records", s)
			}
			accepted(t, version, program, out)
		})
	}
}

// Without branch records, the jumps of a command are counted, or it is stepped. It keeps
// its exit code, and its program is optimized.
func TestBoltOptimize(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.Tool(t, "/usr/lib/llvm-22/bin/llvm-bolt")
	program, dir := boltable(t, "branches"), t.TempDir()
	optimized := filepath.Join(dir, "optimized")
	const rounds = "200000000" // some seconds, so that it is stepped on a busy machine, too
	r := fulgur(t, "bolt", "--llvm", "22", "--optimize", optimized, "--check", "1", "--stats", "json", "--", program, rounds)
	s := summaryOf(t, 7, r)
	if len(s.Binaries) != 1 || s.Binaries[0].Optimized != optimized || !strings.Contains(strings.Join(s.Binaries[0].Findings, "\n"), "taken branches") {
		t.Errorf("summary = %+v, want an optimized binary with findings", s)
	}
	if c := s.Binaries[0].Comparison; c.Verdict != "not compared" || !strings.Contains(c.Reason, "with --check") { // that takes longer than a second
		t.Errorf("comparison = %+v, want a request for more time", c)
	}
	for name, used := range map[string]bool{"counting jumps": s.Counting.Windows > 0, "single-stepping the command": s.Stepping.Bursts > 0} {
		if used && !strings.Contains(r.stderr, "no branch recording hardware: "+name) {
			t.Errorf("standard error = %s, want a note about %s", r.stderr, name)
		}
	}
	again, err := exec.Command(optimized, rounds).Output()
	if string(again) != r.stdout || err == nil {
		t.Errorf("optimized program: got %q, %v; want %q", again, err, r.stdout)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("files beside the output: %v, %v, want only the output", files, err)
	}
}

// Binaries that cannot be optimized are rejected before the measurement.
func TestBoltOptimizeRefused(t *testing.T) {
	testenv.Root(t)
	testenv.Tool(t, "/usr/lib/llvm-22/bin/llvm-bolt")
	good := boltable(t, "branches")
	stripped := filepath.Join(t.TempDir(), "stripped")
	if b, err := exec.Command(testenv.Tool(t, "strip"), "-o", stripped, good).CombinedOutput(); err != nil {
		t.Fatalf("strip: %v\n%s", err, b)
	}
	plain := compile(t, "branches.c", "plain", "-O2")
	out := filepath.Join(t.TempDir(), "out")
	for name, test := range map[string]struct{ program, out, want string }{
		"no relocations": {plain, out, "link it with -Wl,--emit-relocs"},
		"no symbols":     {stripped, out, "is stripped, but llvm-bolt needs its symbol table"},
		"itself":         {good, good, "is the binary itself"},
		"directory":      {good, t.TempDir(), "is a directory"},
		"nowhere":        {good, "/no/such/dir/out", "/no/such/dir"},
	} {
		t.Run(name, func(t *testing.T) {
			r := fulgur(t, "bolt", "--llvm", "22", "--optimize", test.out, "--", test.program)
			if r.code == 0 || !strings.Contains(r.stderr, test.want) {
				t.Errorf("exit code %d, %q does not say %q", r.code, r.stderr, test.want)
			}
		})
	}
}

// If a program is replaced while it runs, the running version is profiled and optimized.
func TestBoltReplaced(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.Tool(t, "/usr/lib/llvm-22/bin/llvm-bolt")
	program := boltable(t, "branches")
	pid := running(t, program)
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	writeTo(t, program, "something else")
	optimized := filepath.Join(t.TempDir(), "optimized")
	s := bolt(t, 0, append([]string{"-p", pid, "--llvm", "22", "--optimize", optimized}, stepFast...)...)
	if len(s.Binaries) != 1 || s.Binaries[0].Optimized != optimized {
		t.Errorf("summary = %+v, want an optimized binary", s)
	}
	if c := s.Binaries[0].Comparison; c.Verdict != "not compared" || !strings.Contains(c.Reason, "a running process cannot be repeated") {
		t.Errorf("comparison = %+v, want one that is not possible", c)
	}
	if out, err := exec.Command(optimized, "1000").Output(); len(out) == 0 {
		t.Errorf("the optimized program does not run: %v", err)
	}
	s = boltUntil(t, stepped(1), append([]string{"-p", pid, "-o", filepath.Join(t.TempDir(), "out")}, stepFast...)...)
	if len(s.Binaries) != 1 || !strings.Contains(strings.Join(s.Binaries[0].Warnings, "\n"), "the file at this path is not the one that ran") {
		t.Errorf("summary = %+v, want a warning about the file to optimize", s)
	}
}

// Children are stepped, the counts of several processes add up, and every process that
// runs a binary is found, even if it starts later or in a cgroup.
func TestBoltProcesses(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	program := boltable(t, "branches")
	out := filepath.Join(t.TempDir(), "out.preagg")
	enough := func(t *testing.T, s boltSummary, threads uint64) {
		t.Helper()
		if len(s.Binaries) != 1 || s.Stepping.Threads < threads || s.Records == 0 {
			t.Errorf("summary = %+v, want one binary, all threads, and records", s)
		}
		accepted(t, 22, program, out)
	}
	t.Run("forks", func(t *testing.T) {
		s := bolt(t, 0, append([]string{"-o", out, "--llvm", "22"}, append(stepFast, "--", program, "fork")...)...)
		enough(t, s, 3)
	})
	// They have no records of a start.
	inside := func(t *testing.T, s boltSummary) {
		t.Helper()
		if s.InsideShare != 1 {
			t.Errorf("summary = %+v, want all records inside", s)
		}
	}
	t.Run("several", func(t *testing.T) {
		pids := working(t, program) + "," + working(t, program)
		s := boltUntil(t, stepped(2), append([]string{"-o", out, "--llvm", "22", "-p", pids}, stepFast...)...)
		enough(t, s, 2)
		inside(t, s)
	})
	t.Run("binary", func(t *testing.T) {
		first := running(t, program)
		cmd := command(t, append([]string{"bolt", "--binary", program, "-o", out, "--llvm", "22", "600"}, stepFast...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, cmd)
		awaitTraced(t, first)
		awaitTraced(t, running(t, program))
		enough(t, summaryOf(t, 0, interrupt(t, cmd)), 2)
	})
	t.Run("cgroup", func(t *testing.T) {
		group := newCgroup(t)
		pid := working(t, program)
		writeTo(t, filepath.Join(group, "cgroup.procs"), pid)
		t.Cleanup(func() { leaveCgroup(t, group, pid) })
		running(t, program) // not in it
		s := boltUntil(t, stepped(1), append([]string{"--cgroup", group, "--binary", program, "-o", out, "--llvm", "22"}, stepFast...)...)
		enough(t, s, 1)
		inside(t, s)
		if s.Stepping.Threads != 1 {
			t.Errorf("got %d threads, want 1", s.Stepping.Threads)
		}
	})
}

// newCgroup makes a cgroup that is removed when the test ends.
func newCgroup(t *testing.T) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
			return makeCgroup(t, root)
		}
	}
	testenv.Skip(t, "needs cgroup v2")
	return ""
}

func makeCgroup(t *testing.T, root string) string {
	t.Helper()
	group, err := os.MkdirTemp(root, "fulgur-e2e-") //nolint:usetesting // a cgroup
	if err != nil {
		testenv.Skip(t, "needs the right to make a cgroup: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	return group
}

// leaveCgroup moves a process back to its previous cgroup.
func leaveCgroup(t *testing.T, group, pid string) {
	t.Helper()
	writeTo(t, filepath.Join(filepath.Dir(group), "cgroup.procs"), pid)
}

// Libraries get profiles, too, even if they are loaded later.
func TestBoltAllBinaries(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	program, library := boltable(t, "branches"), boltable(t, "work.so", "-shared", "-fPIC", "-DLIBRARY")
	dir := t.TempDir()
	for rounds := uint64(50_000_000); ; rounds *= 4 { // until there is a burst in the library
		s := bolt(t, 0, slices.Concat([]string{"--all-binaries", "-o", dir, "--llvm", "22"}, stepFast,
			[]string{"--", program, "load", library, strconv.FormatUint(rounds, 10)})...)
		for _, b := range s.Binaries {
			if b.Binary == library {
				accepted(t, 22, library, b.Profile)
				return
			}
		}
		if rounds > 10_000_000_000 {
			t.Fatalf("summary = %+v, want a profile of the library", s)
		}
	}
}

// Without branch hardware, fulgur can sample without branches, and perf2bolt accepts the
// profile.
func TestBoltBasic(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	program := boltable(t, "branches")
	pid := working(t, program)
	out := filepath.Join(t.TempDir(), "out.preagg")
	s := boltUntil(t, func(s boltSummary) bool { return s.Samples > 0 }, "--basic", "--llvm", "22", "-p", pid, "-o", out, "--stats", "json")
	if len(s.Binaries) != 1 || s.Samples == 0 || s.InsideShare != 1 || len(s.Warnings) == 0 {
		t.Errorf("summary = %+v, want one binary, samples, all inside, and a warning", s)
	}
	if text := read(t, out); !strings.HasPrefix(text, "E samples\nS ") {
		t.Errorf("profile = %s\nwant samples without branches", text)
	}
	accepted(t, 22, program, out, "--basic-events")
}

// Without branch records, fulgur does not step processes unless requested.
func TestBoltNoHardware(t *testing.T) {
	testenv.Root(t)
	pid := running(t, testenv.Tool(t, "sleep"), "1000")
	r := fulgur(t, "bolt", "-p", pid, "0.1")
	if r.code == 0 {
		testenv.Unsupported(t, "this machine records branches")
	}
	if r.stdout != "" || !strings.Contains(r.stderr, "--branches stepping") {
		t.Errorf("result = %+v, want only a hint at --branches stepping", r)
	}
	for line, want := range map[string]string{
		"--branches hardware":                "no branch recording hardware",
		"--event cycles":                     "no branch recording hardware",
		"--branches stepping --llvm 22":      "", // it sleeps, which is not an error
		"--branches stepping --event cycles": "--event is only for sampling",
	} {
		r := fulgur(t, append([]string{"bolt", "-p", pid, "0.1"}, strings.Fields(line)...)...)
		if want == "" && r.code == 0 && strings.Contains(r.stderr, "nothing was sampled: the target did not run") {
			continue
		}
		if want == "" || r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: result = %+v, want a failure with the reason", line, r)
		}
	}
}

// The target survives if fulgur is killed.
func TestBoltKilled(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	pid := running(t, boltable(t, "branches"))
	rounds := 6
	if testenv.IsLong() {
		rounds = 60
	}
	for range rounds {
		cmd := command(t, "bolt", "--branches", "stepping", "--max-overhead", "1000", "-p", pid)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, cmd)
		time.Sleep(rand.N(40 * time.Millisecond))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		awaitStat(t, pid, ") R ")
	}
}

// If the stepper is killed, fulgur writes the records so far, and warns the user.
func TestBoltStepperKilled(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	testenv.AnyKernel(t)
	// On a busy machine, the stepper may not have taken a step by the time the target has
	// worked.
	for work := 50 * time.Millisecond; ; work *= 2 {
		pid := running(t, boltable(t, "branches"))
		out := filepath.Join(t.TempDir(), "out.preagg")
		cmd := command(t, append([]string{"bolt", "-p", pid, "-o", out, "600"}, stepFast...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, cmd)
		awaitTraced(t, pid)
		awaitWork(t, pid, work)
		stepper, err := target.Descendants([]int{cmd.Process.Pid})
		if err != nil || len(stepper) != 1 {
			t.Fatalf("children of fulgur = %v, %v, want one", stepper, err)
		}
		if err := syscall.Kill(stepper[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r := finish(t, cmd)
		if r.code != 1 || strings.Count(r.stderr, "the stepping process was killed") != 1 {
			t.Errorf("exit code %d, want 1: %s", r.code, r.stderr)
		}
		if len(read(t, out)) > 0 {
			return
		}
		if !strings.Contains(r.stderr, `"bursts":0,`) || work > 10*time.Second {
			t.Fatalf("the profile is empty, want the records so far: %s", r.stderr)
		}
	}
}
