package target

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// TestMain lets the test binary act as a fulgur that dies while it holds a command: it
// prints the command's pid and waits until it is killed.
func TestMain(m *testing.M) {
	if command := os.Getenv("TARGET_TEST_HOLD"); command != "" {
		c, err := Start([]string{command})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(c.PID())
		select {}
	}
	os.Exit(m.Run())
}

// start starts a command.
func start(t *testing.T, argv []string, files ...*os.File) *Launched {
	t.Helper()
	c, err := Start(argv, files...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // if the test gave up
		_ = c.Signal(os.Kill)
		_ = c.Close()
	})
	return c
}

// release lets a command run.
func release(t *testing.T, c *Launched) {
	t.Helper()
	if err := c.Release(); err != nil {
		t.Fatal(err)
	}
}

// script writes an executable file and returns its path.
func script(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommandExitCode(t *testing.T) {
	tests := map[string]struct {
		argv []string
		want int
	}{
		"exits at once":      {[]string{"true"}, 0},
		"own code":           {[]string{"sh", "-c", "exit 42"}, 42},
		"signalled":          {[]string{"sh", "-c", "kill -TERM $$"}, 128 + 15},
		"shebang":            {[]string{script(t, "#!/bin/sh\nexit $1\n"), "7"}, 7},
		"script without one": {[]string{script(t, "exit $1\n"), "8"}, 8},
		"executes another":   {[]string{"sh", "-c", "exec sh -c 'exit 9'"}, 9},
		// A Go program changes signal handlers; a command starts with the default ones.
		"default signals": {[]string{"sh", "-c", "kill -INT $$"}, 128 + 2},
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := start(t, test.argv)
			for range 2 {
				release(t, c)
			}
			for range 2 {
				if code, err := c.Wait(); code != test.want || err != nil {
					t.Errorf("got exit code %d, %v; want %d", code, err, test.want)
				}
			}
			if err := c.Signal(os.Kill); err != nil {
				t.Errorf("Signal after exit: %v", err)
			}
		})
	}
}

// A started command is stopped in its new image, before its first instruction.
func TestCommandStartsStopped(t *testing.T) {
	stdout, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	c := start(t, []string{"echo", "ran"}, nil, w, os.Stderr)
	w.Close()
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", c.PID()))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(exe) == filepath.Base(os.Args[0]) {
		t.Errorf("stopped in %s, before the execve", exe)
	}
	s, err := procfs.Process(c.PID()).Stat()
	if err != nil {
		t.Fatal(err)
	}
	if s.State != 't' {
		t.Errorf("got state %c, want t (tracing stop)", s.State)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.PID()))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(maps, []byte("libc.so")) {
		t.Error("the dynamic loader has already run")
	}
	if err := Check(Target{Scope: Command, PIDs: []int{c.PID()}}); err != nil {
		t.Error(err)
	}
	release(t, c)
	out, err := io.ReadAll(stdout)
	if err != nil || string(out) != "ran\n" {
		t.Errorf("got output %q, %v; want ran", out, err)
	}
	if code, err := c.Wait(); code != 0 || err != nil {
		t.Errorf("got exit code %d, %v; want 0", code, err)
	}
}

func TestCommandErrors(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		name    string
		code    int
		message string
	}{
		"not in PATH":         {"no-such-command", 127, "no-such-command: command not found"},
		"no such file":        {dir + "/none", 127, "command not found"},
		"not executable":      {plain, 126, plain + ": cannot run it: permission denied"},
		"directory":           {dir, 126, "is a directory"},
		"missing interpreter": {script(t, "#!/nonexistent/interpreter\n"), 126, "interpreter"},
		"broken binary":       {script(t, "\x7fELF\x02\x01\x01\x00broken"), 126, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Start([]string{test.name}, nil, nil, nil)
			if err == nil {
				// A shell runs it, as with execvp.
				release(t, c)
				if code, err := c.Wait(); code < 126 || err != nil {
					t.Errorf("got exit code %d, %v; want at least 126", code, err)
				}
				return
			}
			var ce *CommandError
			if !errors.As(err, &ce) || ce.ExitCode() != test.code {
				t.Fatalf("got error %v, want exit code %d", err, test.code)
			}
			if !strings.Contains(err.Error(), test.message) {
				t.Errorf("got message %q, want it to contain %q", err, test.message)
			}
		})
	}
	if _, err := Start(nil); err == nil {
		t.Error("got no error for an empty command")
	}
}

func TestCommandKilledWhileStopped(t *testing.T) {
	c := start(t, []string{"sleep", "1000"})
	if err := c.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	testenv.Receive(t, c.Done(), "the command does not end")
	if err := c.Release(); err != nil {
		t.Error(err)
	}
	if code, err := c.Wait(); code != 128+9 || err != nil {
		t.Errorf("got exit code %d, %v; want 137", code, err)
	}
}

// A signal sent while the command is stopped is not lost.
func TestCommandSignalledWhileStopped(t *testing.T) {
	c := start(t, []string{"sleep", "1000"})
	if err := c.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Release(); err != nil {
		t.Error(err)
	}
	if code, err := c.Wait(); code != 128+15 || err != nil {
		t.Errorf("got exit code %d, %v; want 143", code, err)
	}
}

// A command that is slow to exit is asked only once.
func TestCommandTerminate(t *testing.T) {
	dir := t.TempDir()
	ready, asked := filepath.Join(dir, "ready"), filepath.Join(dir, "asked")
	c := start(t, []string{"sh", "-c", `
		trap 'n=x$n; : > "$1"' TERM
		trap 'exit ${#n}' WINCH # a shell sees to the lowest signal first
		: > "$0"; while :; do sleep 0.01; done`, ready, asked})
	release(t, c)
	for _, event := range []string{ready, asked} {
		testenv.Await(t, func() bool {
			_, err := os.Stat(event)
			return err == nil
		}, func() string { return "the command did not create the file " + filepath.Base(event) })
		if err := c.Terminate(); err != nil {
			t.Error(err)
		}
	}
	if err := c.Signal(syscall.SIGWINCH); err != nil {
		t.Error(err)
	}
	if code, err := c.Wait(); code != 1 || err != nil {
		t.Errorf("got exit code %d (the number of SIGTERMs), %v; want 1", code, err)
	}
}

func TestCommandClose(t *testing.T) {
	c := start(t, []string{"sleep", "1000"})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if code, err := c.Wait(); code != 128+9 || err != nil {
		t.Errorf("got exit code %d, %v; want 137", code, err)
	}

	c = start(t, []string{"sh", "-c", "exit 5"})
	release(t, c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if code, err := c.Wait(); code != 5 || err != nil {
		t.Errorf("released command: got exit code %d, %v; want 5", code, err)
	}
}

// A held command dies with its tracer, and does not stay stopped.
func TestCommandDiesWithTracer(t *testing.T) {
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), "TARGET_TEST_HOLD=cat")
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	held, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(held)
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	// The timeout keeps a failing test from hanging.
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(held), Events: unix.POLLIN}}, 5000)
	if n != 1 || err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Errorf("the held command outlived its tracer: %d, %v", n, err)
	}
}

func TestPrivilegedCommand(t *testing.T) {
	path := script(t, "#!/bin/sh\n")
	if gainsPrivileges(path) {
		t.Error("got true for a plain file, want false")
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if !gainsPrivileges(path) {
		t.Error("got false for a set-user-ID file, want true")
	}
	c, err := Start([]string{path})
	if !capability.Available(capability.SysPtrace) {
		if !errors.Is(err, ErrPrivileged) {
			t.Errorf("got error %v, want %v", err, ErrPrivileged)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A set-user-ID program keeps its privileges if the tracer may trace it.
func TestSetuidCommand(t *testing.T) {
	if os.Getuid() != 0 || !capability.Available(capability.SysPtrace) {
		testenv.Skip(t, "needs root: gives a file another owner")
	}
	const nobody = 65534
	program, err := os.ReadFile(testenv.Tool(t, "id"))
	if err != nil {
		t.Fatal(err)
	}
	path := script(t, string(program))
	if err := os.Chown(path, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil || fs.Flags&unix.ST_NOSUID != 0 {
		testenv.Skip(t, "needs a temporary directory that is not mounted nosuid")
	}
	stdout, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	c := start(t, []string{path, "-u"}, nil, w, os.Stderr)
	w.Close()
	release(t, c)
	out, err := io.ReadAll(stdout)
	if err != nil || strings.TrimSpace(string(out)) != strconv.Itoa(nobody) {
		t.Errorf("got effective user %q, %v; want %d", out, err, nobody)
	}
	testenv.Receive(t, c.Done(), "the command does not end")
}

func TestWatch(t *testing.T) {
	start := func() *Launched {
		c := start(t, []string{"sleep", "1000"})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a, b := start(), start()
	done := Watch(t.Context(), []int{a.PID(), b.PID()})
	_ = a.Close()
	select {
	case <-done:
		t.Fatal("Watch ended although a process still runs")
	default:
	}
	_ = b.Close()
	const late = "Watch does not end"
	testenv.Receive(t, done, late)
	testenv.Receive(t, Watch(t.Context(), []int{a.PID(), b.PID()}), late) // both have exited
	testenv.Receive(t, Watch(t.Context(), nil), late)
}

func TestWatchThread(t *testing.T) {
	tid := make(chan int)
	leave := make(chan struct{})
	thread := func() {
		// The thread of a goroutine that exits while locked to it exits too.
		runtime.LockOSThread()
		tid <- unix.Gettid()
		<-leave
	}
	go thread()
	id := <-tid
	if id == os.Getpid() {
		go thread() // not on the first thread, which never exits
		id = <-tid
	}
	watched := Watch(t.Context(), []int{id})
	polled := make(chan struct{})
	go func() {
		pollExit(t.Context(), id)
		close(polled)
	}()
	select {
	case <-watched:
		t.Error("Watch ended although the thread runs")
	case <-polled:
		t.Error("pollExit returned although the thread runs")
	default:
	}
	close(leave)
	testenv.Receive(t, watched, "Watch does not end")
	testenv.Receive(t, polled, "pollExit does not return")
}

func TestWatchCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := Watch(ctx, []int{os.Getpid()})
	cancel()
	select {
	case <-done:
		t.Error("Watch ended although the process runs")
	default:
	}
	pollExit(ctx, os.Getpid())
}
