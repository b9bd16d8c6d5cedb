package smoke

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/testenv"
)

// workloadVar makes the test binary the profiled program, for the given CPU time.
const workloadVar = "FULGUR_SMOKE_WORKLOAD"

func TestMain(m *testing.M) {
	if until := os.Getenv(workloadVar); until != "" {
		d, err := time.ParseDuration(until)
		if err == nil {
			err = readDeep(depth-1, d)
		}
		if err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// depth is the number of frames of readDeep on each stack of readZeros.
const depth = 31

// readDeep calls itself n times, and then readZeros.
//
//go:noinline
func readDeep(n int, until time.Duration) error {
	if n > 0 {
		return readDeep(n-1, until)
	}
	return readZeros(until)
}

// readZeros reads zeros until the process has used the given CPU time, most of it in the kernel.
//
//go:noinline
func readZeros(until time.Duration) error {
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		return err
	}
	defer zeros.Close()
	buffer := make([]byte, 1<<20)
	for {
		if _, err := io.ReadFull(zeros, buffer); err != nil {
			return err
		}
		used, err := testenv.CPUTime(os.Getpid())
		if err != nil || used >= until {
			return err
		}
	}
}

// Each method of walking user stacks, for samples in user space and in the kernel, of a
// command, a process and the whole machine, finds all frames up to the program's root.
// Functions of the kernel have their names.
func TestProfile(t *testing.T) {
	testenv.VM(t)
	program := testenv.Program(t, "fulgur/cmd/fulgur", t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kernel := kernelFunctions(t)
	for name, args := range map[string][]string{
		"command by tables":         {"--unwind", "auto", "--", self},
		"command by frame pointers": {"--unwind", "fp", "--", self},
		"process by tables":         {"-p"},
		"machine by tables":         {},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.folded")
			var stderr bytes.Buffer
			cmd := testenv.Command(t, program, append([]string{"profile", "-e", "cpu-clock", "-F", "199", "-a", "-o", out}, args...)...)
			cmd.Stderr = &stderr
			cmd.Env = append(os.Environ(), workloadVar+"=1s")
			if !slices.Contains(args, "--") {
				workload := exec.Command(self)
				workload.Env = append(os.Environ(), workloadVar+"=1h")
				if err := workload.Start(); err != nil {
					t.Fatal(err)
				}
				defer func() {
					_ = workload.Process.Kill()
					_ = workload.Wait() // killed
				}()
				if slices.Contains(args, "-p") {
					cmd.Args = append(cmd.Args, strconv.Itoa(workload.Process.Pid))
				}
				cmd.Args = append(cmd.Args, "5")
			}
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, &stderr)
			}
			checkFolded(t, out, kernel, &stderr)
		})
	}
}

// checkFolded checks the stacks of readZeros in a file of folded stacks.
func checkFolded(t *testing.T, path string, kernel map[string]bool, stderr *bytes.Buffer) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	samples, inKernel := 0, 0
	for line := range strings.Lines(string(text)) {
		i := strings.LastIndexByte(line, ' ')
		n, err := strconv.Atoi(strings.TrimSpace(line[i+1:]))
		if err != nil {
			t.Fatal(err)
		}
		frames := strings.Split(line[:i], ";")
		// In a function that has not yet set up its frame, the frame pointer leads to its caller's
		// caller. So readZeros may be missing, but no function before it.
		if !slices.ContainsFunc(frames, func(f string) bool { return strings.HasSuffix(f, ".readZeros") }) {
			continue
		}
		samples += n
		deep := 0
		for _, f := range frames {
			if strings.HasSuffix(f, ".readDeep") {
				deep++
			}
		}
		if deep != depth || !slices.Contains(frames, "runtime.main") {
			t.Errorf("a stack of readZeros has %d frames of readDeep, want %d and runtime.main: %s", deep, depth, line)
		}
		for _, f := range frames {
			name, is := strings.CutSuffix(f, "_[k]")
			if !is {
				continue
			}
			inKernel++
			if name, _, _ = strings.Cut(name, "+"); !kernel[name] {
				t.Errorf("%s is not a function in /proc/kallsyms: %s", f, line)
			}
		}
	}
	if samples == 0 || inKernel == 0 {
		t.Errorf("got %d samples of readZeros and %d frames of the kernel, want some\n%s\n%s", samples, inKernel, text, stderr)
	}
}

// kernelFunctions returns the names in /proc/kallsyms.
func kernelFunctions(t *testing.T) map[string]bool {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) >= 3 {
			names[fields[2]] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}
