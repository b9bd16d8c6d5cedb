package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// copyTo copies a file, and makes it executable.
func copyTo(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, content, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// converse starts a program that begins with an answer like those of [serve], and returns it.
func converse(t *testing.T, cmd *exec.Cmd) (ask func(commands string) map[string]int, first map[string]int) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	startTarget(t, cmd)
	lines := bufio.NewReader(answers)
	ask = func(commands string) map[string]int {
		t.Helper()
		if _, err := io.WriteString(in, commands); err != nil {
			t.Fatal(err)
		}
		return answer(t, lines)
	}
	return ask, answer(t, lines)
}

// Probes are placed in what a process has mapped, however its files are reached: the hits and the
// allocations are the program's own.
func TestOpened(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	dynamic := compile(t, "opened.c", "opened", "-pthread")
	static := compile(t, "opened.c", "opened", "-pthread", "-static")
	for _, test := range []struct {
		name       string
		program    string
		arguments  []string // with DIR for the program's directory
		path       string   // in events, likewise
		ended      bool
		disappears bool // the program's file
	}{
		{name: "plain", program: dynamic, path: "DIR/lower/opened"},
		{name: "first thread ended", program: dynamic, arguments: []string{"ended"}, path: "DIR/lower/opened", ended: true},
		{name: "chroot", program: dynamic, arguments: []string{"chroot", "DIR/empty"}, path: "DIR/lower/opened"},
		{name: "replaced", program: dynamic, path: "DIR/lower/opened", disappears: true},
		{name: "all of these", program: dynamic, arguments: []string{"ended", "chroot", "DIR/empty"}, path: "DIR/lower/opened", ended: true, disappears: true},
		{name: "overlay elsewhere", program: static, arguments: []string{"overlay", "DIR"}, path: "/opened"},
		{name: "overlay elsewhere, ended", program: static, arguments: []string{"overlay", "DIR", "ended"}, path: "/opened", ended: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			program := filepath.Join(dir, "lower", "opened")
			copyTo(t, test.program, program)
			if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
				t.Fatal(err)
			}
			for i := range test.arguments {
				test.arguments[i] = strings.Replace(test.arguments[i], "DIR", dir, 1)
			}
			cmd := exec.Command(program, test.arguments...)
			ask, first := converse(t, cmd)
			if errno, failed := first["overlay"]; failed {
				testenv.Unsupported(t, "no overlay can be mounted: errno %d", errno)
			}
			if _, ready := first["calls"]; !ready {
				t.Fatalf("the program does not run: %v", first)
			}
			pid := cmd.Process.Pid
			if test.ended {
				testenv.Await(t, func() bool {
					stat, err := procfs.Process(pid).Stat()
					return err == nil && stat.Exited()
				}, func() string { return "the first thread still runs" })
			}
			if test.disappears {
				if err := os.Remove(program); err != nil {
					t.Fatal(err)
				}
				if !test.ended { // as by an upgrade
					copyTo(t, static, program)
				}
			}
			checkOpened(t, pid, strings.Replace(test.path, "DIR", dir, 1), ask)
		})
	}
}

// If the first thread ends during a measurement, the summary says what can be missing.
func TestFirstThreadEnds(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	program := compile(t, "opened.c", "opened", "-pthread")
	confined := testenv.KernelBefore(t, 6, 6) || !testenv.KernelBefore(t, 6, 10) // see uprobe.FiltersProcesses
	out := filepath.Join(t.TempDir(), "out.folded")
	for _, measure := range []string{"count", "latency"} {
		cmd := exec.Command(program)
		ask, _ := converse(t, cmd)
		pid := cmd.Process.Pid
		c := command(t, measure, "-e", "uprobe:"+program+":by_malloc", "-o", out, "-p", strconv.Itoa(pid))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, c)
		ask("e")
		testenv.Await(t, func() bool {
			stat, err := procfs.Process(pid).Stat()
			return err == nil && stat.Exited()
		}, func() string { return "the first thread still runs" })
		r := interrupt(t, c)
		want := fmt.Sprintf("the first thread of process %d ended during the measurement", pid)
		if r.code != 0 || strings.Contains(r.stderr, want) != confined {
			t.Errorf("%s: exit code %d: %s", measure, r.code, r.stderr)
		}
		c = command(t, measure, "-e", "uprobe:"+program+":by_malloc", "-o", out, "-p", strconv.Itoa(pid))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		awaitSampling(t, c)
		if r := interrupt(t, c); r.code != 0 || strings.Contains(r.stderr, want) {
			t.Errorf("%s, ended before: exit code %d: %s", measure, r.code, r.stderr)
		}
	}
}

// checkOpened compares hits and allocations with the program's own.
func checkOpened(t *testing.T, pid int, path string, ask func(string) map[string]int) {
	t.Helper()
	before := ask("-")
	out := filepath.Join(t.TempDir(), "out.folded")
	kinds := []string{"uprobe:" + path + ":by_malloc", "uretprobe:" + path + ":by_malloc", "usdt:" + path + ":fulgur:opened"}
	args := []string{"count", "-o", out, "-p", strconv.Itoa(pid)}
	for _, event := range kinds {
		args = append(args, "-e", event)
	}
	c := command(t, args...)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	awaitSampling(t, c)
	after := ask("r")
	r := interrupt(t, c)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	stacks := readFolded(t, out)
	for _, event := range kinds {
		if got, want := count(stacks, "["+event+"]"), hits(after["calls"]-before["calls"], 1, r.stderr); !want.Has(got) {
			t.Errorf("%s: got %d hits, want %s\n%s", event, got, want, r.stderr)
		}
	}
	got, want, summary := summedAllocations(t, pid, ask, "r", "--rate", "1")
	for name := range want {
		if want[name] -= after[name]; strings.HasPrefix(name, "by_") && got[name] != want[name] {
			t.Errorf("%s: got %d, want %d\n%s", name, got[name], want[name], summary)
		}
	}
}

// Functions whose symbols are in a separate debug file can be probed, by name and by pattern.
func TestDebugFileFunctions(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	testenv.Tool(t, "objcopy")
	testenv.Tool(t, "xz")
	whole := compile(t, "opened.c", "opened", "-pthread", "-g")
	for _, by := range []string{"link", "embedded"} {
		t.Run(by, func(t *testing.T) {
			dir := t.TempDir()
			program, debug := filepath.Join(dir, "opened"), filepath.Join(dir, "opened.debug")
			copyTo(t, whole, program)
			commands := [][]string{
				{"objcopy", "--only-keep-debug", program, debug},
				{"objcopy", "--strip-all", program},
				{"objcopy", "--add-gnu-debuglink=" + debug, program},
			}
			if by == "embedded" {
				commands = [][]string{
					{"objcopy", "--strip-debug", "--keep-symbol=by_malloc", program, debug},
					{"xz", debug},
					{"objcopy", "--strip-all", "--add-section", ".gnu_debugdata=" + debug + ".xz", program},
				}
			}
			for _, c := range commands {
				if text, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", c, err, text)
				}
			}
			for _, name := range []string{"by_malloc", "by_mall*"} {
				cmd := exec.Command(program)
				ask, _ := converse(t, cmd)
				out := filepath.Join(dir, "out.folded")
				event := "uprobe:" + program + ":" + name
				for measure, what := range map[string]string{"count": "hits", "latency": "intervals"} {
					c := command(t, measure, "-e", event, "-o", out, "-p", strconv.Itoa(cmd.Process.Pid))
					before := ask("-")
					if err := c.Start(); err != nil {
						t.Fatal(err)
					}
					awaitSampling(t, c)
					after := ask("r")
					r := interrupt(t, c)
					if r.code != 0 {
						t.Fatalf("%s %s: exit code %d, want 0: %s", measure, event, r.code, r.stderr)
					}
					if want := fmt.Sprintf("%d %s", after["calls"]-before["calls"], what); !regexp.MustCompile(`\b` + want).MatchString(r.stderr) {
						t.Errorf("%s %s: want %s:\n%s", measure, event, want, r.stderr)
					}
				}
			}
		})
	}
}
