package e2e

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/testenv"
)

// awaitFile waits until a file exists.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	testenv.Await(t, func() bool {
		_, err := os.Stat(path)
		return err == nil
	}, func() string { return "waited for the file " + path })
}

// streamed is a line of --stream --format jsonl.
type streamed struct {
	Time, Comm   string
	End          string
	PID, TID     int
	Weight       int64
	Kernel, User []streamedFrame
}

type streamedFrame struct {
	Address, Function, Module, File string
	Line                            int
}

// inTest reports whether a user frame is in a function of this test.
func (s streamed) inTest(function string) bool {
	for _, f := range s.User {
		if f.Function == "fulgur/test/e2e."+function && strings.HasSuffix(f.File, "_test.go") && f.Line > 0 {
			return true
		}
	}
	return false
}

// A stream has all samples of the target, each with its stack, names and lines,
// approximately in order of time.
func TestStream(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	pid := load(t, "shares").Process.Pid
	r := sampleWork(t, time.Second, []string{strconv.Itoa(pid)}, "profile", "-p", strconv.Itoa(pid), "-F", "499", "--stream", "--format", "jsonl")
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	var lines, all, long, short int
	for text, s := range streamedBy(t, r) {
		if s.PID != pid || s.TID == 0 || s.Weight == 0 || s.Time == "" || len(s.Kernel)+len(s.User) == 0 {
			t.Fatalf("got an incomplete sample of process %d: %s", pid, text)
		}
		lines++
		if s.inTest("TestMain") {
			all++
		}
		if s.inTest("long") {
			long++
		}
		if s.inTest("short") {
			short++
		}
	}
	if !strings.HasPrefix(r.stderr, strconv.Itoa(lines)+" samples of pid") {
		t.Errorf("got %d lines, want as many as in the summary:\n%s", lines, r.stderr)
	}
	checkNumbers(t, all, long, short)
}

// A stream of text can be split into samples, and ends without a message when its reader
// exits.
func TestStreamReaderLeaves(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	pid := strconv.Itoa(load(t, "shares").Process.Pid)
	cmd := command(t, "profile", "-p", pid, "-F", "499", "--stream")
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var sample []string
	for lines.Scan() && lines.Text() != "" {
		sample = append(sample, lines.Text())
	}
	heading := regexp.MustCompile(`^COMM: .* \(pid=` + pid + `, tid=\d+\) @ CPU \d+, \d\d:\d\d:\d\d\.\d{6}$`)
	if len(sample) < 3 || !heading.MatchString(sample[0]) {
		t.Errorf("first sample = %q, want a heading and frames", sample)
	}
	out.Close()
	_ = cmd.Wait() // killed by SIGPIPE, which is checked below
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGPIPE {
		t.Errorf("exited with %v, want SIGPIPE", cmd.ProcessState)
	}
	if stderr := cmd.Stderr.(interface{ String() string }).String(); stderr != "" {
		t.Errorf("standard error = %s, want none", stderr)
	}
}

// The windows together contain all counts, each with its own stacks, and fulgur keeps the
// requested number of files.
func TestInterval(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	pid := strconv.Itoa(load(t, "shares").Process.Pid)
	dir := t.TempDir()
	// run measures until there are three windows of that name.
	run := func(name string, args ...string) result {
		t.Helper()
		cmd := command(t, append([]string{"profile", "-F", "997", "-p", pid, "--interval", "0.2", "-o", filepath.Join(dir, name+".folded")}, args...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, cmd)
		awaitWork(t, pid, 100*time.Millisecond)
		third := filepath.Join(dir, name+"-0003.folded")
		testenv.Await(t, func() bool { // a later one may have replaced it
			files, err := filepath.Glob(filepath.Join(dir, name+"-*.folded"))
			return err == nil && len(files) > 0 && files[len(files)-1] >= third
		}, func() string { return "there is no third window" })
		r := interrupt(t, cmd)
		if r.code != 0 {
			t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
		}
		return r
	}
	r := run("many")
	files, err := filepath.Glob(filepath.Join(dir, "many-*.folded"))
	if err != nil || len(files) < 3 {
		t.Fatalf("files = %q, %v, want at least 3", files, err)
	}
	sum := 0
	for _, file := range files {
		stacks := readFolded(t, file)
		sum += total(stacks)
		if n := count(stacks, "[stack lost]"); n > 0 {
			t.Errorf("%s: %d samples have no stack, want 0", file, n)
		}
	}
	all := 0
	if m := regexp.MustCompile(`(?m)^(\d+) samples?, \d+ windows `).FindStringSubmatch(r.stderr); m != nil {
		all, _ = strconv.Atoi(m[1])
	}
	if sum != all || all == 0 {
		t.Errorf("got %d samples in %d windows, want %d:\n%s", sum, len(files), all, r.stderr)
	}

	r = run("kept", "--keep", "1")
	kept, err := filepath.Glob(filepath.Join(dir, "kept-*.folded"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("files = %q, %v, want 1", kept, err)
	}
	written := regexp.MustCompile(`(?m)^(.*kept-\d+\.folded): \d+ samples? in \d\.\d s, `).FindAllStringSubmatch(r.stderr, -1)
	if len(written) < 2 || kept[0] != written[len(written)-1][1] {
		t.Errorf("kept %q, want the last file in:\n%s", kept, r.stderr)
	}
	if strings.Contains(r.stderr, "written: ") {
		t.Errorf("standard error names a file that is not a window:\n%s", r.stderr)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "many-*.folded")); err != nil || len(left) != len(files) {
		t.Errorf("files now = %[2]q, %[3]v, want %[1]q", files, left, err)
	}
}

// The flame graphs of windows are served to users who know the address, and written
// to files if requested. Ctrl-C ends both.
func TestServe(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	pid := strconv.Itoa(load(t, "shares").Process.Pid)
	out := filepath.Join(t.TempDir(), "x.folded")
	cmd := command(t, "profile", "-p", pid, "-F", "499", "--serve", "--interval", "0.3", "-o", out)
	cmd.Stderr = nil
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() {
		t.Fatal("got no line from fulgur, want the address")
	}
	url, ok := strings.CutPrefix(lines.Text(), "Live flame graph: ")
	if !ok {
		t.Fatalf("first line = %q, want the address", lines.Text())
	}
	for !strings.Contains(lines.Text(), "x-0002.folded: ") {
		if !lines.Scan() {
			t.Fatal("fulgur exited, want a second line")
		}
	}
	get := func(url string) (int, string) {
		t.Helper()
		r, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(body)
	}
	if code, body := get(url + "window/1"); code != http.StatusOK || !strings.Contains(body, `<script id="data"`) {
		t.Errorf("first window: got %d %.100s, want a page with data", code, body)
	}
	if code, _ := get(regexp.MustCompile(`[A-Za-z0-9]+/$`).ReplaceAllString(url, "")); code != http.StatusNotFound {
		t.Errorf("without the token: got %d, want 404", code)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, stderr); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// If a window cannot be written, this is an error, also for the last one.
func TestIntervalUnwritable(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(load(t, "shares").Process.Pid)
	for _, interval := range []string{"0.2", "60"} {
		cmd := command(t, "profile", "-p", pid, "-F", "499", "-o", filepath.Join(dir, "x.folded"), "--interval", interval)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, cmd)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if interval == "60" {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
		if r := finish(t, cmd); r.code != 1 || !strings.Contains(r.stderr, "x-000") {
			t.Errorf("interval %s: exit code %d, want 1: %s", interval, r.code, r.stderr)
		}
	}
}

// Impossible combinations are rejected before the measurement.
func TestLiveUsage(t *testing.T) {
	testenv.AnyKernel(t)
	for _, test := range []struct{ args, want string }{
		{"--stream --interval 1", "cannot be combined"},
		{"--stream --format pprof", "jsonl"},
		{"--stream --wall", "--interval or --serve"},
		{"--serve --wall -I", "-I"},
		{"--serve --interval 0.01", "too short"},
		{"--interval 1", "-o"},
		{"--interval 0.01 -o x.folded", "too short"},
		{"--keep 3", "--interval"},
	} {
		r := fulgur(t, append([]string{"profile"}, strings.Fields(test.args)...)...)
		if r.code != 2 || !strings.HasPrefix(r.stderr, "fulgur: ") || !strings.Contains(r.stderr, test.want) || r.stdout != "" {
			t.Errorf("%s: exit code %d, want 2; output %q", test.args, r.code, r.stderr)
		}
	}
}

// Windows end like a single profile: with the losses, the remedies for files without
// symbols and, if there are no samples, the reason.
func TestWindowsEnd(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	shell := exec.Command(testenv.Tool(t, "sh"), "-c", "sleep 1000; :")
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
		_ = shell.Wait()
	})
	testenv.Await(t, func() bool {
		pids, err := target.Descendants([]int{shell.Process.Pid})
		return err == nil && len(pids) > 0
	}, func() string { return "the shell has no child" })
	pid := strconv.Itoa(shell.Process.Pid)
	awaitSleep(t, pid)
	dir := t.TempDir()
	for _, args := range [][]string{
		{"-o", filepath.Join(dir, "one.folded")},
		{"-o", filepath.Join(dir, "many.folded"), "--interval", "0.2"},
		{"--stream"},
	} {
		r := fulgur(t, append(append([]string{"profile", "-p", pid}, args...), "0.5")...)
		if r.code != 0 || strings.Count(r.stderr, "nothing was sampled: ") != 1 || !strings.Contains(r.stderr, "--children") {
			t.Errorf("%s: exit code %d, want 0:\n%s", args, r.code, r.stderr)
		}
	}

	// Its code has no names in any window.
	stripped := filepath.Join(dir, "stripped")
	if out, err := exec.Command(testenv.Tool(t, "strip"), "-o", stripped, testenv.Tool(t, "yes")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	busy := exec.Command(stripped) // standard output is discarded
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = busy.Process.Kill()
		_ = busy.Wait()
	})
	cmd := command(t, "profile", "-F", "499", "--interval", "0.2", "-o", filepath.Join(dir, "stripped.folded"), "-p", strconv.Itoa(busy.Process.Pid))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, cmd)
	awaitWork(t, strconv.Itoa(busy.Process.Pid), 100*time.Millisecond)
	awaitFile(t, filepath.Join(dir, "stripped-0002.folded"))
	r := interrupt(t, cmd)
	if strings.Count(r.stderr, "  stripped: ") != 1 || strings.Count(r.stderr, "stripped-000") < 2 {
		t.Errorf("exit code %d; want one remedy, and two windows, in:\n%s", r.code, r.stderr)
	}
	pid = strconv.Itoa(busy.Process.Pid)
	r = sampleWork(t, 100*time.Millisecond, []string{pid}, "profile", "-F", "499", "-p", pid, "--stream")
	if r.code != 0 || strings.Count(r.stderr, "  stripped: ") != 1 || !strings.Contains(r.stderr, " unnamed ") {
		t.Errorf("stream: exit code %d; want unnamed functions or callers, and one remedy, in:\n%s", r.code, r.stderr)
	}
}
