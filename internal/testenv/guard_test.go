package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// guardTestVar makes TestGuardChild the test that leaves processes. The value says how it ends.
const guardTestVar = "FULGUR_TEST_LEAVES"

// TestGuardChild starts processes, prints their IDs and ends as it is told, without cleanups.
func TestGuardChild(t *testing.T) {
	end := os.Getenv(guardTestVar)
	if end == "" {
		Unsupported(t, "is a part of TestGuard")
	}
	// A child that ignores the end of a session, a child of a child, one that has another session
	// and no environment, and a stopped one.
	for _, script := range []string{
		"trap '' HUP; echo $$; exec sleep 1000",
		"sleep 1000 & echo $!; wait",
		"setsid env -i sleep 1000 & echo $!",
		"sleep 1000 & kill -STOP $!; echo $!",
	} {
		child := exec.Command("sh", "-c", script)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		fmt.Print(line)
	}
	fmt.Println("started")
	switch end {
	case "panic": // as in package testing after its time limit
		go panic("end")
	case "exit":
		os.Exit(3)
	case "return":
		return
	}
	time.Sleep(TimeLimit())
}

// copyTest copies this program, since a process that has another program than its parent gets a guard.
func copyTest(t *testing.T, name string) string {
	t.Helper()
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := WriteProgram(path, program); err != nil {
		t.Fatal(err)
	}
	return path
}

// However the tests end, their processes end, too.
func TestGuard(t *testing.T) {
	AnyKernel(t)
	for _, tool := range []string{"sh", "sleep", "setsid", "env"} {
		Tool(t, tool)
	}
	program := copyTest(t, "guarded")
	for end, signal := range map[string]unix.Signal{
		"panic": 0, "exit": 0, "return": 0,
		"interrupt": unix.SIGINT, "terminate": unix.SIGTERM, "quit": unix.SIGQUIT, "hang up": unix.SIGHUP,
	} {
		t.Run(end, func(t *testing.T) {
			cmd := Command(t, program, "-test.run=^TestGuardChild$")
			cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, guardedVar+"=") }), guardTestVar+"="+end)
			pids := startLeaving(t, cmd)
			if signal != 0 {
				if err := cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
			}
			err := cmd.Wait()
			awaitEnds(t, pids)
			got := cmd.ProcessState.String()
			want := map[string]string{"panic": "exit status 2", "exit": "exit status 3", "return": "exit status 0", "quit": "exit status 2", "interrupt": "signal: interrupt", "terminate": "signal: terminated", "hang up": "signal: hangup"}[end]
			if got != want {
				t.Errorf("got %s (%v), want %s", got, err, want)
			}
		})
	}
}

// startLeaving starts TestGuardChild, and returns the processes that it has started.
func startLeaving(t *testing.T, cmd *exec.Cmd) (pids []int) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "started" {
		var pid int
		if _, err := fmt.Sscan(lines.Text(), &pid); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		pids = append(pids, pid)
	}
	if len(pids) != 4 {
		t.Fatalf("got processes %v, want 4", pids)
	}
	return pids
}

// awaitEnds waits until processes have ended.
func awaitEnds(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		Await(t, func() bool {
			// Nobody may reap it, as in a container without an init process.
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(stat), ") Z ")
		}, func() string {
			_ = unix.Kill(pid, unix.SIGKILL)
			return fmt.Sprintf("process %d outlived the tests", pid)
		})
	}
}

// If the go command that waits for the tests and reads their output is killed, the tests end, and their
// processes, too.
func TestGuardAfterGo(t *testing.T) {
	AnyKernel(t)
	for _, tool := range []string{"sh", "sleep", "setsid", "env", "cp"} {
		Tool(t, tool)
	}
	program, shell := copyTest(t, "guarded"), filepath.Join(t.TempDir(), "go")
	if out, err := exec.Command("cp", Tool(t, "sh"), shell).CombinedOutput(); err != nil {
		t.Fatalf("copy the shell: %v\n%s", err, out)
	}
	cmd := Command(t, shell, "-c", program+" -test.run='^TestGuardChild$'; exit")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, guardedVar+"=") }), guardTestVar+"=wait")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = writer
	pids := startLeaving(t, cmd)
	if err := errors.Join(reader.Close(), writer.Close(), cmd.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	awaitEnds(t, pids)
}

// Tests that start processes are in packages with a guard.
func TestEveryStarterIsGuarded(t *testing.T) {
	AnyKernel(t)
	starts, guarded := map[string]bool{}, map[string]bool{"../../internal/testenv": true}
	for _, folder := range []string{"bench", "bpf", "cmd", "internal", "test"} {
		err := filepath.WalkDir("../../"+folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, spec := range f.Imports {
				switch spec.Path.Value {
				case `"os/exec"`:
					starts[filepath.Dir(path)] = true
				case `"fulgur/internal/testenv"`:
					guarded[filepath.Dir(path)] = true
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(starts) < 50 {
		t.Errorf("got only %d packages whose tests start processes", len(starts))
	}
	for path := range starts {
		if !guarded[path] {
			t.Errorf("%s: got os/exec without internal/testenv, which ends the processes that tests leave", path)
		}
	}
}
