package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// guardedVar is set in a process whose guard is running, and in the processes that it starts.
const guardedVar = "FULGUR_TEST_GUARDED"

// A binary of tests that imports this package runs them in a child process. The process that go test
// started becomes the guard of the child: when the child ends, however it ends, the guard ends all
// processes that the tests have left. A test's cleanups cannot do this after a time limit, Ctrl-C or a
// panic in another goroutine, and PR_SET_PDEATHSIG does not reach the children of children.
func init() {
	if testing.Testing() && !InVM() && os.Getenv(guardedVar) == "" && !startedByTest() {
		os.Exit(guard())
	}
}

// startedByTest reports whether the parent process has the same program, as if a test had started this
// process with another environment, or may not be examined.
func startedByTest() bool {
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return true
	}
	parent, err := os.Stat(fmt.Sprintf("/proc/%d/exe", os.Getppid()))
	return err != nil || os.SameFile(own, parent)
}

// guard runs this program again as a child process, with the same arguments and files, waits for its
// end, ends what it has left, and returns its exit code.
func guard() int {
	// Processes whose parents have ended become children of this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "guard the processes of tests:", os.NewSyscallError("prctl", err))
		return 2
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)
	// If the reader of the output has ended, writing must not end this process. A child would inherit an
	// ignored signal.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	var pidfd int
	// PR_SET_PDEATHSIG is about the end of this thread. It is the first one, which an init function keeps,
	// and ends with the process.
	pid, err := syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   append(os.Environ(), guardedVar+"=1"),
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, PidFD: &pidfd},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "guard the processes of tests:", err)
		return 2
	}
	go func() {
		for s := range signals {
			_ = unix.PidfdSendSignal(pidfd, s.(unix.Signal), nil, 0) // it may have ended
		}
	}()
	go AfterGo(func() { _ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0) })
	var status unix.WaitStatus
	for {
		ended, err := unix.Wait4(-1, &status, 0, nil)
		if ended == pid {
			break
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			fmt.Fprintln(os.Stderr, "guard the processes of tests:", os.NewSyscallError("wait4", err))
			return 2
		}
	}
	endChildren()
	if status.Signaled() {
		signal.Reset()
		_ = unix.Kill(os.Getpid(), status.Signal())
		return 128 + int(status.Signal()) // if the signal does not end this process
	}
	return status.ExitStatus()
}

// AfterGo calls end when the go command that started this process has ended, if it has, as by a signal:
// nobody waits for the result any more. It returns if another program did, such as a shell, which may
// leave a process to itself.
func AfterGo(end func()) {
	parent := os.Getppid()
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err != nil || string(comm) != "go\n" {
		return
	}
	fd, err := unix.PidfdOpen(parent, 0)
	if err != nil {
		return
	}
	if os.Getppid() == parent {
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		}
	}
	if err == nil {
		end()
	}
}

// endChildren ends all children of this process, and theirs, which become its children when their
// parents have ended. fulgur's own processes need time to remove breakpoints from others.
func endChildren() {
	const grace, limit = 10 * time.Second, time.Minute
	asked := map[int]bool{}
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(time.Millisecond) {
		for err := error(nil); err == nil; {
			var status unix.WaitStatus
			var pid int
			if pid, err = unix.Wait4(-1, &status, unix.WNOHANG, nil); pid == 0 {
				break
			}
			if errors.Is(err, unix.ECHILD) {
				return
			}
			delete(asked, pid)
		}
		for _, pid := range children() {
			switch {
			case !asked[pid]:
				asked[pid] = true
				if line := commandLine(pid); line != "" { // else it has already ended
					fmt.Fprintf(os.Stderr, "left by the tests, ended: process %d, %q\n", pid, line)
				}
				_ = unix.Kill(pid, unix.SIGTERM)
				_ = unix.Kill(pid, unix.SIGCONT)
			case time.Since(begin) > grace:
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	fmt.Fprintln(os.Stderr, "left by the tests, and still there:", children())
}

// children returns the children of this process.
func children() (pids []int) {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range files {
		text, _ := os.ReadFile(file) // the thread may have ended
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// commandLine returns the beginning of a process's command line, which may be empty.
func commandLine(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	const most = 200
	return string(bytes.ReplaceAll(bytes.TrimRight(line[:min(len(line), most)], "\x00"), []byte{0}, []byte{' '}))
}
