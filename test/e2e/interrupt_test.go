package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// Ctrl-C ends the wait for the first reader of a named pipe.
func TestPipeUnread(t *testing.T) {
	in := writeTo(t, filepath.Join(t.TempDir(), "in.folded"), "main;work 1\n")
	for _, args := range []string{
		"convert --format folded -o PIPE IN",
		"diff -o PIPE IN IN",
		"report -o LINK IN",
		"profile -o PIPE 1",
		"offcpu -o LINK",
		"record -o PIPE --format html",
		"bolt --basic -p PID -o PIPE",
	} {
		name, _, _ := strings.Cut(args, " ")
		t.Run(name, func(t *testing.T) {
			testenv.AnyKernel(t)
			pipe, link := filepath.Join(t.TempDir(), "pipe"), filepath.Join(t.TempDir(), "link")
			if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Symlink(pipe, link)); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(args, "IN") {
				testenv.Root(t)
			}
			args := strings.NewReplacer("PIPE", pipe, "LINK", link, "IN", in).Replace(args)
			if before, after, ok := strings.Cut(args, "PID"); ok {
				args = before + strconv.Itoa(load(t, "shares").Process.Pid) + after
			}
			cmd := command(t, strings.Fields(args)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			testenv.Await(t, func() bool { return opensForWriting(cmd.Process.Pid) }, func() string {
				return fmt.Sprintf("fulgur does not wait: %s", cmd.Stderr)
			})
			wantUnwritten(t, cmd, "nothing was written")
		})
	}
}

// opensForWriting reports whether a thread of a process waits in open(2), for writing.
func opensForWriting(pid int) bool {
	return waitsIn(pid, unix.SYS_OPENAT, func(arguments []uint64) bool { // directory, path, flags, …
		return arguments[2]&unix.O_ACCMODE == unix.O_WRONLY
	})
}

// waitsIn reports whether a thread of a process waits in a system call for whose arguments matches
// returns true.
func waitsIn(pid, number int, matches func(arguments []uint64) bool) bool {
	calls, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	for _, path := range calls {
		call, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		f := strings.Fields(string(call)) // number, 6 arguments, stack pointer, program counter
		if len(f) < 9 || f[0] != strconv.Itoa(number) {
			continue
		}
		arguments := make([]uint64, 6)
		for i := range arguments {
			if arguments[i], err = strconv.ParseUint(f[1+i], 0, 64); err != nil {
				break
			}
		}
		if err == nil && matches(arguments) {
			return true
		}
	}
	return false
}

// repeatTime is longer than the time after a signal in which others count as the same one; see
// cmd/fulgur/signals.go.
const repeatTime = 150 * time.Millisecond

// wantUnwritten interrupts a started fulgur once, which must then fail with a message.
func wantUnwritten(t *testing.T, cmd *exec.Cmd, message string) {
	t.Helper()
	time.Sleep(repeatTime) // if it was interrupted before, it has handled that
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the exit code is checked below
	}()
	t.Cleanup(func() { // a second call of Wait would block
		_ = cmd.Process.Kill()
		<-ended
	})
	testenv.Receive(t, ended, "the first interrupt does not end fulgur")
	if stderr := fmt.Sprint(cmd.Stderr); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(stderr, "interrupted: ") || !strings.Contains(stderr, message) {
		t.Errorf("got %v, want exit code 1 and %q: %s", cmd.ProcessState, message, stderr)
	}
}

// Ctrl-C ends the wait for a back end that does not answer, but not if it has ended the
// measurement.
func TestBackEndSilent(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	for name, duration := range map[string]string{"after the duration": "0.1", "after an interrupt": ""} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			asked := make(chan error, 1)
			go func() {
				conn, err := listener.Accept()
				if err == nil {
					t.Cleanup(func() { conn.Close() })
					_, err = conn.Read(make([]byte, 1))
				}
				asked <- err
			}()
			cmd := command(t, strings.Fields("profile -o http://"+listener.Addr().String()+" "+duration)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if duration == "" {
				awaitSampling(t, cmd)
				if err := cmd.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
			}
			if err := testenv.Receive(t, asked, "fulgur does not send the profile"); err != nil {
				t.Fatal(err)
			}
			wantUnwritten(t, cmd, "the back end has not taken the profile")
		})
	}
}

// Ctrl-C ends the wait for a reader that does not read, but not if it has ended the measurement.
func TestReaderStopped(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.folded")
	for _, test := range []struct {
		name, args string
		measures   bool // until it is interrupted
	}{
		{"convert", "convert --format folded " + in, false},
		{"convert to the device", "convert --format folded -o /dev/stdout " + in, false},
		{"profile", "profile --format html 0.1", false},
		{"profile until interrupted", "profile --format html", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			testenv.AnyKernel(t)
			if strings.HasPrefix(test.args, "profile") {
				testenv.Root(t)
			}
			var stacks bytes.Buffer
			for i := range 10_000 {
				fmt.Fprintf(&stacks, "main;function%d %d\n", i, i+1)
			}
			writeTo(t, in, stacks.String())
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
				t.Fatal(err)
			}
			cmd := command(t, strings.Fields(test.args)...)
			cmd.Stdout = w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if test.measures {
				awaitSampling(t, cmd)
				if err := cmd.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
			}
			testenv.Await(t, func() bool { return isFull(t, w) }, func() string {
				return fmt.Sprintf("fulgur does not write: %s", cmd.Stderr)
			})
			wantUnwritten(t, cmd, "was not written") // convert may have been between two writes
		})
	}
}

// isFull reports whether a pipe has no room.
func isFull(t *testing.T, pipe *os.File) bool {
	t.Helper()
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(pipe.Fd()), Events: unix.POLLOUT}}, 0)
	if err != nil && !errors.Is(err, unix.EINTR) {
		t.Fatal(err)
	}
	return err == nil && ready == 0
}
