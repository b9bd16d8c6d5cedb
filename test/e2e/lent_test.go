package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/doctor"
	"fulgur/internal/testenv"
)

// setcapLine has the capabilities of the README's setcap command.
const setcapLine = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_checkpoint_restore,cap_dac_read_search,cap_syslog=ep"

// lent is a fulgur with file capabilities, and a user who may run it. The user has a
// directory, and root has one beside it.
type lent struct {
	t              *testing.T
	program        string
	own, forbidden string
}

// lend gives the capabilities of the README's command to a copy of fulgur.
func lend(t *testing.T) *lent {
	t.Helper()
	allowMeasuring(t)
	setcap := testenv.Tool(t, "setcap")
	dir := public(t)
	l := &lent{t: t, program: duplicate(t, program(t), dir), own: filepath.Join(dir, "own"), forbidden: filepath.Join(dir, "forbidden")}
	if err := errors.Join(os.Mkdir(l.own, 0o755), os.Chown(l.own, nobody, nobody), os.Mkdir(l.forbidden, 0o700)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(setcap, setcapLine, l.program).CombinedOutput(); err != nil {
		testenv.Skip(t, "needs a file system with capabilities: %v: %s", err, out)
	}
	return l
}

// command returns a command that runs fulgur as the user.
func (l *lent) command(args ...string) *exec.Cmd {
	l.t.Helper()
	cmd := command(l.t, args...)
	cmd.Path = l.program
	cmd.Env = append(os.Environ(), "HOME="+l.own, "E2E_WORKLOAD=100ms")
	as(cmd)
	cmd.Dir = l.own
	return cmd
}

// secret writes a file that only root can read, and returns its path.
func (l *lent) secret(name, content string) string {
	l.t.Helper()
	path := filepath.Join(l.forbidden, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		l.t.Fatal(err)
	}
	return path
}

// private fails the test if a run, which should be rejected, revealed any part of a
// secret file on the terminal or in a file of the user.
func (l *lent) private(r result, secret string) {
	l.t.Helper()
	if r.code == 0 || !strings.Contains(r.stderr, "permission denied") {
		l.t.Errorf("exit code %d, want a refusal: %s", r.code, r.stderr)
	}
	l.silent(r, secret)
}

// silent fails the test if a run revealed a secret.
func (l *lent) silent(r result, secret string) {
	l.t.Helper()
	if strings.Contains(r.stdout+r.stderr, secret) {
		l.t.Errorf("output contains the secret %q: %s%s", secret, r.stdout, r.stderr)
	}
	err := filepath.WalkDir(l.own, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.HasPrefix(b, []byte("\x1f\x8b")) {
			b = gunzip(l.t, path)
		}
		if bytes.Contains(b, []byte(secret)) {
			l.t.Errorf("%s contains the secret %q", path, secret)
		}
		return err
	})
	if err != nil {
		l.t.Error(err)
	}
}

// All commands read files that the user names with the user's own rights.
func TestLentFilesNamed(t *testing.T) {
	testenv.AnyKernel(t)
	l := lend(t)
	const secret = "top_secret"
	folded := l.secret("stacks.folded", secret+" 1\n")
	text := l.secret("text", secret+"\n")
	mine := filepath.Join(l.own, "mine.folded")
	if err := os.WriteFile(mine, []byte("f 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	root := load(t, "shares").Process.Pid
	workload := duplicate(t, os.Args[0], filepath.Dir(l.own))
	for name, args := range map[string][]string{
		"converted":            {"convert", "-o", "out.txt", folded},
		"quoted":               {"convert", "-o", "out.txt", text},
		"compared":             {"diff", mine, folded},
		"compared with":        {"diff", folded, mine},
		"shown":                {"view", "--no-open", text},
		"shown, base":          {"view", "--no-open", "--base", text, mine},
		"merged":               {"merge", "-o", "out.preagg", text},
		"binary":               {"bolt", "--binary", l.secret("binary", secret), "--branches", "stepping", "1"},
		"binary of perf.data":  {"convert", "--binary", filepath.Join(l.forbidden, "binary"), "-o", "out.preagg", mine},
		"configuration":        {"agent", "--config", text},
		"report":               {"report", text},
		"other system's files": {"profile", "--symfs", filepath.Join(l.forbidden, "usr"), "-f", "--", workload},
		// Files that only CAP_SYS_PTRACE gives access to.
		"output in another's root":  {"profile", "-o", fmt.Sprintf("/proc/%d/root/tmp/out.txt", root), "--", workload},
		"another's root as system":  {"profile", "--symfs", fmt.Sprintf("/proc/%d/root", root), "-f", "--", workload},
		"input in another's root":   {"convert", "--format", "text", fmt.Sprintf("/proc/%d/root", root) + mine},
		"input in another's memory": {"convert", "--format", "text", fmt.Sprintf("/proc/%d/environ", root)},
	} {
		t.Run(name, func(t *testing.T) {
			l.t = t
			l.private(l.run(args...), secret)
		})
	}
}

// run runs fulgur as the user, with a time limit.
func (l *lent) run(args ...string) result {
	l.t.Helper()
	cmd := l.command(args...)
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	end := time.AfterFunc(testenv.Patience(time.Minute), func() { _ = cmd.Process.Signal(os.Interrupt) })
	defer end.Stop()
	return finish(l.t, cmd)
}

// A program may name any file as its source. fulgur embeds it only if its user may read
// it.
func TestLentSources(t *testing.T) {
	l := lend(t)
	testenv.AnyKernel(t)
	gcc := testenv.Tool(t, "gcc")
	const secret = "the secret of line 3"
	source := l.secret("secret.c", "\n\n"+secret+"\n")
	const code = "#line 1 %q\nunsigned long x; __attribute__((noinline)) void burn(void) { for (long i = 0; i < 1000000000; i++) x += i; }\nint main(void) { burn(); }\n"
	program := filepath.Join(l.own, "program")
	build := exec.Command(gcc, "-g", "-O1", "-Wl,--build-id", "-o", program, "-xc", "-")
	build.Stdin = strings.NewReader(fmt.Sprintf(code, source))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r := l.run("profile", "-F", "99", "-o", "cpu.json.gz", "--", program); r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	r := l.run("convert", "--embed-sources", "-o", "embedded.json.gz", "cpu.json.gz")
	if r.code != 0 || !strings.Contains(r.stderr, "not embedded: ") || !strings.Contains(r.stderr, "secret.c: permission denied") {
		t.Errorf("exit code %d, want a message about the missing source: %s", r.code, r.stderr)
	}
	l.silent(r, secret)
	// If the user may read it, it is embedded; otherwise this would test nothing.
	if err := errors.Join(os.Chmod(l.forbidden, 0o755), os.Chmod(source, 0o644)); err != nil {
		t.Fatal(err)
	}
	l.run("convert", "--embed-sources", "-o", "embedded.json.gz", "cpu.json.gz")
	if text := gunzip(t, filepath.Join(l.own, "embedded.json.gz")); !bytes.Contains(text, []byte(secret)) {
		t.Error("a source that the user may read is not embedded")
	}
}

// capabilities matches the lines of /proc/PID/status with the capabilities that a
// thread has, or can put into effect.
var capabilities = regexp.MustCompile(`(?m)^Cap(Inh|Prm|Eff|Amb):\s*([0-9a-f]+)$`)

// hasNone fails the test if a thread of a process has a capability.
func hasNone(t *testing.T, pid int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) < 2 {
		t.Fatalf("got %d threads of process %d, want several: %v", len(threads), pid, err)
	}
	for _, path := range threads {
		status, err := os.ReadFile(path)
		if err != nil {
			continue // it has exited
		}
		sets := capabilities.FindAllSubmatch(status, -1)
		if len(sets) != 4 {
			t.Fatalf("%s: want 4 sets of capabilities in: %s", path, status)
		}
		for _, set := range sets {
			if n, err := strconv.ParseUint(string(set[2]), 16, 64); err != nil || n != 0 {
				t.Errorf("%s has Cap%s %s, want none", path, set[1], set[2])
			}
		}
	}
}

// Commands that do not measure have no capabilities on any thread while they read.
func TestLentDropped(t *testing.T) {
	l := lend(t)
	mine := filepath.Join(l.own, "mine.folded")
	if err := os.WriteFile(mine, []byte("f 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"convert", "--format", "text"}, {"diff", mine}, {"report"}, {"view", "--no-open"}, {"merge"},
	} {
		t.Run(args[0], func(t *testing.T) {
			l.t = t
			fifo := filepath.Join(l.own, args[0])
			if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.Chown(fifo, nobody, nobody)); err != nil {
				t.Fatal(err)
			}
			cmd := l.command(append(args, fifo)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			in := openedByReader(t, fifo)
			hasNone(t, cmd.Process.Pid)
			if err := in.Close(); err != nil { // the input is empty, which is not a profile
				t.Fatal(err)
			}
			finish(t, cmd)
		})
	}
}

// The process that attaches uprobes has no capabilities of fulgur's file, whoever starts it, and
// fulgur and its doctor say that uprobes and counting jumps need root.
func TestLentUprobes(t *testing.T) {
	l := lend(t)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, theirs := os.NewFile(uintptr(pair[0]), "own"), os.NewFile(uintptr(pair[1]), "theirs")
	defer own.Close() // ends the process
	defer theirs.Close()
	cmd := l.command()
	cmd.Args, cmd.ExtraFiles = []string{"fulgur-uprobes"}, []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Once it has answered the request to detach nothing, it is ready. Messages begin with the size of their body.
	request := make([]byte, 7*4)
	binary.NativeEndian.PutUint32(request[4:], 1)
	if _, err := own.Write(request); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(own, make([]byte, 3*4))
		answered <- err
	}()
	if err := testenv.Receive(t, answered, "the process does not answer"); err != nil {
		t.Fatal(err)
	}
	hasNone(t, cmd.Process.Pid)
	for _, args := range [][]string{{"count", "-e", "uprobe:" + cmd.Path + ":main.main", "1"}, {"alloc", "-p", strconv.Itoa(os.Getpid()), "1"}} {
		if r := l.run(args...); r.code == 0 || !strings.Contains(r.stderr, "uprobes need root, the capabilities of fulgur's file are not enough: run fulgur with sudo\n") {
			t.Errorf("%s: exit code %d, want an error and that root is needed: %s", args[0], r.code, r.stderr)
		}
	}
	if runtime.GOARCH != "amd64" {
		return // fulgur counts no jumps there
	}
	r := l.run("bolt", "--branches", "counting", "-p", strconv.Itoa(os.Getpid()), "1")
	if r.code != 1 || !strings.Contains(r.stderr, "uprobes need root, the capabilities of fulgur's file are not enough: run fulgur with sudo; or use --branches stepping") {
		t.Errorf("exit code %d, want 1 and that root is needed: %s", r.code, r.stderr)
	}
	// The doctor says the same, even if the file has only the two capabilities that it needs.
	if out, err := exec.Command(testenv.Tool(t, "setcap"), "cap_bpf,cap_perfmon=ep", l.program).CombinedOutput(); err != nil {
		t.Fatalf("setcap: %v: %s", err, out)
	}
	var report doctor.Report
	if err := json.Unmarshal([]byte(l.run("doctor", "--json").stdout), &report); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"uprobe", "jump_counting"} {
		i := slices.IndexFunc(report.Checks, func(c doctor.Result) bool { return c.ID == id })
		if i < 0 || report.Checks[i].Problem == nil {
			t.Errorf("%s: the doctor found no problem", id)
		} else if p := report.Checks[i].Problem; !strings.HasPrefix(p.Remedy.Do, "run fulgur with sudo: ") {
			t.Errorf("%s: got problem %q with remedy %q, want advice to use sudo", id, p.What, p.Remedy)
		}
	}
}

// openedByReader waits until a pipe is open for reading, and opens it.
func openedByReader(t *testing.T, fifo string) (f *os.File) {
	t.Helper()
	testenv.Await(t, func() bool {
		var err error
		f, err = os.OpenFile(fifo, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err != nil && !errors.Is(err, unix.ENXIO) {
			t.Fatal(err)
		}
		return err == nil
	}, func() string { return "the pipe has no reader" })
	return f
}

// children returns the processes that a process has started.
func children(t *testing.T, pid int) []int {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has exited
		}
		for _, field := range strings.Fields(string(b)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, child)
		}
	}
	return all
}

// The process that shows a recording has no capabilities.
func TestLentRecordingShown(t *testing.T) {
	l := lend(t)
	testenv.AnyKernel(t)
	workload := duplicate(t, os.Args[0], filepath.Dir(l.own))
	c := startOn(t, 100, 30, l.command("record", "-o", "r.json.gz", "--no-faults", "--", workload))
	testenv.Await(t, func() bool { return strings.Contains(c.written(), "Press Ctrl-C to stop.") },
		func() string { return "the recording is not shown: " + c.written() })
	shown := children(t, c.cmd.Process.Pid)
	if len(shown) != 1 {
		t.Errorf("processes %v show the recording, want one", shown)
		shown = []int{c.cmd.Process.Pid}
	}
	hasNone(t, shown[0])
	c.press("\x03")
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, c.written())
	}
	if err := unix.Kill(shown[0], 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d is still running: %v", shown[0], err)
	}
}

// The capabilities work: fulgur finds names of a program that the user cannot read, in a
// directory that the user cannot enter, and of a JIT with a map that only its own user
// can read.
func TestLentMeasures(t *testing.T) {
	l := lend(t)
	hidden := duplicate(t, os.Args[0], l.forbidden)
	if err := os.Chmod(hidden, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(hidden)
	cmd.Env = append(os.Environ(), "E2E_WORKLOAD=shares")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	pid := strconv.Itoa(cmd.Process.Pid)
	r := sampleWorkBy(t, l.command("profile", "-p", pid, "-F", "199", "-f"), 300*time.Millisecond, pid)
	if n := count(folded(t, r.stdout), ";fulgur/test/e2e.long"); r.code != 0 || n == 0 {
		t.Errorf("exit code %d, want 0; no sample is in the other user's function:\n%s", r.code, r.stderr)
	}
}

// The measured command runs with its user's rights.
func TestLentCommand(t *testing.T) {
	l := lend(t)
	r := l.run("profile", "-q", "-o", "out.txt", "--", testenv.Tool(t, "grep"), "^Cap[IPEA]", "/proc/self/status")
	sets := capabilities.FindAllStringSubmatch(r.stdout, -1)
	if r.code != 0 || len(sets) != 4 {
		t.Fatalf("exit code %d, want 0; output %q: %s", r.code, r.stdout, r.stderr)
	}
	for _, set := range sets {
		if strings.Trim(set[2], "0") != "" {
			t.Errorf("the command has Cap%s %s, want none", set[1], set[2])
		}
	}
}

// If a link is in place of a perf map, fulgur follows it with the user's rights. It reads
// a map that only the process's user can read with its file capabilities.
func TestLentPerfMaps(t *testing.T) {
	l := lend(t)
	testenv.AnyKernel(t)
	if loops[runtime.GOARCH] == nil {
		testenv.Unsupported(t, "no machine code for %s", runtime.GOARCH)
	}
	content := fmt.Sprintf("%x 1000 top_secret\n", uint64(0x700000000000))
	for name, test := range map[string]struct {
		plant func(path string) error
		named bool
	}{
		"its own": {func(path string) error { return os.WriteFile(path, []byte(content), 0o600) }, true},
		"symbolic link": {func(path string) error {
			return errors.Join(os.Symlink(l.secret("map", content), path), os.Lchown(path, nobody, nobody))
		}, false},
		"hard link": {func(path string) error { return os.Link(l.secret("map", content), path) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			l.t = t
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), jitVar+"="+strings.Repeat("keep - ", 400))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			path := fmt.Sprintf("/tmp/perf-%d.map", cmd.Process.Pid)
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				_ = os.Remove(path)
			})
			if err := test.plant(path); err != nil {
				t.Fatal(err)
			}
			pid := strconv.Itoa(cmd.Process.Pid)
			profiler := l.command("profile", "-p", pid, "-F", "199", "-f", "-o", "jit.folded")
			r := sampleWorkBy(t, profiler, 300*time.Millisecond, pid)
			stacks := readFolded(t, filepath.Join(l.own, "jit.folded"))
			if n := count(stacks, "top_secret"); r.code != 0 || (n > 0) != test.named {
				t.Errorf("exit code %d, want 0; %d samples have the map's name: %v\n%s", r.code, n, stacks, r.stderr)
			}
		})
	}
}
