package stepping

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/testenv"
)

// nobody is an ordinary user's ID.
const nobody = 65534

// asNobody makes a command run as that user.
func asNobody(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// publicDir makes a folder that everyone may read.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "stepping") //nolint:usetesting // the parent of t.TempDir is readable by its owner alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// duplicate copies a program to a folder with the given mode.
func duplicate(t *testing.T, program, dir string, mode os.FileMode) string {
	t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, filepath.Base(program))
	if err := os.WriteFile(name, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
	return name
}

// lentStepper returns a copy of fulgur whose file has the capabilities of the README's
// setcap line that stepping uses.
func lentStepper(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	setcap := testenv.Tool(t, "setcap")
	bin := duplicate(t, testenv.Program(t, "fulgur/cmd/fulgur", t.TempDir()), publicDir(t), 0o755)
	if out, err := exec.Command(setcap, "cap_sys_ptrace,cap_dac_read_search=ep", bin).CombinedOutput(); err != nil {
		testenv.Skip(t, "needs a file system with capabilities: %v: %s", err, out)
	}
	return bin
}

// refusalOf makes an ordinary user's stepper step a process and returns the first
// refusal. It returns "" if there is none until enough returns true.
func refusalOf(t *testing.T, bin string, pid int, enough func() bool) string {
	t.Helper()
	stepper := asNobody(exec.Command(bin, Subcommand))
	stepper.Stderr = os.Stderr
	in, err := stepper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := stepper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stepper.Start(); err != nil {
		t.Fatal(err)
	}
	defer stepper.Wait()
	opts := Options{MaxOverhead: 1000}.withDefaults()
	if err := gob.NewEncoder(in).Encode(request{Options: &opts, Add: []int{pid}}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var watch sync.WaitGroup
	defer watch.Wait()
	defer close(done)
	watch.Go(func() {
		defer in.Close()
		for !enough() {
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	for reports := gob.NewDecoder(out); ; {
		var r report
		if err := reports.Decode(&r); err != nil {
			return ""
		}
		if len(r.Refused) > 0 {
			go io.Copy(io.Discard, out)
			return r.Refused[0].Reason
		}
	}
}

// A user who steps a process can kill it by killing the stepper. So the stepper refuses
// processes of other users, whatever the capabilities of fulgur's file.
func TestOthersProcess(t *testing.T) {
	bin := lentStepper(t)
	tests := map[string]struct {
		target  *exec.Cmd
		refused bool
	}{
		"root's": {exec.Command("sleep", "1000"), true},
		"user's": {asNobody(exec.Command("sleep", "1000")), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := test.target.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				test.target.Process.Kill()
				test.target.Wait()
			}()
			patience := time.Second // enough if it is not refused
			if test.refused {
				patience = testenv.TimeLimit()
			}
			begin := time.Now()
			got := refusalOf(t, bin, test.target.Process.Pid, func() bool { return time.Since(begin) > patience })
			if (got != "") != test.refused {
				t.Errorf("got refusal %q, want one: %v", got, test.refused)
			}
			if test.refused && !strings.Contains(got, "run fulgur as root") {
				t.Errorf("got refusal %q, want a remedy", got)
			}
		})
	}
	t.Run("set-user-ID program", func(t *testing.T) { testSetUserID(t, bin) })
}

// A user's program may execute a set-user-ID program. The stepper refuses it from then
// on. bin is a result of [lentStepper].
func testSetUserID(t *testing.T, bin string) {
	cycle := duplicate(t, compile(t, "cycle", "-static", "-no-pie"), filepath.Dir(bin), 0o755|os.ModeSetuid)
	for range 10 {
		target := asNobody(exec.Command("sh", "-c", "sleep 1; exec "+cycle))
		if err := target.Start(); err != nil {
			t.Fatal(err)
		}
		pid := target.Process.Pid
		asUser := false
		begin := time.Now()
		got := refusalOf(t, bin, pid, func() bool {
			exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			if err != nil {
				return true
			}
			status, err := procfs.Process(pid).Status()
			asUser = err == nil && exe == cycle && status.UIDs[1] != 0
			return asUser || time.Since(begin) > testenv.TimeLimit()
		})
		target.Process.Kill()
		target.Wait()
		if asUser {
			continue // traced during the execve, which then ignores the set-user-ID bit
		}
		if !strings.Contains(got, "run fulgur as root") {
			t.Errorf("got refusal %q of a set-user-ID program, want a remedy", got)
		}
		return
	}
	t.Error("the set-user-ID program never became root")
}

func TestInit(t *testing.T) {
	s, err := Start(t.Context(), []int{1}, Options{})
	if err == nil {
		s.Close()
		t.Fatal("got no error for process 1")
	}
	if !strings.Contains(err.Error(), "init process") {
		t.Errorf("got error %q, want the reason", err)
	}
}

// A process that was stopped before it is stepped stays stopped.
func TestStoppedBefore(t *testing.T) {
	cmd := launch(t, compile(t, "cycle", "-static", "-no-pie"))
	pid := cmd.Process.Pid
	signalTo(t, pid, unix.SIGSTOP)
	await(t, pid, 'T')
	s := start(t, Options{MaxOverhead: 1000}, pid)
	time.Sleep(200 * time.Millisecond)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	await(t, pid, 'T')
	if tracer := tracerOf(t, pid); tracer != 0 {
		t.Errorf("still traced by process %d", tracer)
	}
	signalTo(t, pid, unix.SIGCONT)
	await(t, pid, 'R')
}

// Signals that usually end a process do not end the stepper, because that would kill the
// target.
func TestStepperSignalled(t *testing.T) {
	bin := compile(t, "steadfast")
	b, cmd := steadfast(t, bin, "default")
	s := start(t, Options{MaxOverhead: 1000}, cmd.Process.Pid)
	for range 5 {
		collect(t, s, 1)
		for sig := unix.SIGHUP; sig <= lastSignal; sig++ {
			switch sig {
			case unix.SIGKILL, unix.SIGSTOP, unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV:
			default:
				signalTo(t, s.PID(), sig)
			}
		}
	}
	collect(t, s, 1)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	b.check(t, cmd.Process.Pid)
}

// A target that is frozen during a burst does not block the stepper forever, and continues
// when it is thawed.
func TestFrozen(t *testing.T) {
	testenv.Root(t)
	before := endWait
	endWait = time.Second
	t.Cleanup(func() { endWait = before })
	group := freezer(t)
	freeze := func(yes string) { writeTo(t, filepath.Join(group, "cgroup.freeze"), yes) }
	b, cmd := steadfast(t, compile(t, "steadfast"), "default")
	pid := cmd.Process.Pid
	writeTo(t, filepath.Join(group, "cgroup.procs"), strconv.Itoa(pid))
	s := start(t, Options{MaxOverhead: 1000}, pid)
	go follow(t, s, pid)
	eventually(t, "frozen in a burst", func() bool {
		time.Sleep(rand.N(20 * time.Millisecond))
		freeze("1")
		// By then, a burst would be over.
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			if tracerOf(t, pid) == 0 {
				freeze("0")
				return false
			}
		}
		return true
	})
	if err := s.Close(); !errors.Is(err, ErrHolding) {
		t.Errorf("got error %v, want %v", err, ErrHolding)
	}
	freeze("0")
	b.check(t, pid)
	eventually(t, "let go", func() bool { return tracerOf(t, pid) == 0 })
	b.check(t, pid)
}

// freezer makes a cgroup that can be frozen, and returns its folder.
func freezer(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := unix.Mount("none", root, "cgroup2", 0, ""); err != nil {
		testenv.Skip(t, "needs cgroup v2: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(root, 0) })
	group, err := os.MkdirTemp(root, "stepping") //nolint:usetesting // a cgroup
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { eventually(t, "removed", func() bool { return os.Remove(group) == nil }) })
	return group
}

func writeTo(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0); err != nil {
		t.Error(err)
	}
}

// A process whose first thread has exited is stepped in its other threads. It looks like
// a process in which another thread is executing a program. Linked dynamically, the program would
// need libgcc_s.so.1 to end a thread.
func TestFirstThreadEnded(t *testing.T) {
	b, cmd := steadfast(t, compile(t, "steadfast", "-static"), "leaderless")
	pid := cmd.Process.Pid
	await(t, pid, 'Z')
	s := start(t, Options{MaxOverhead: 1000}, pid)
	for _, sample := range collect(t, s, 5) {
		if sample.PID != pid || sample.TID == pid {
			t.Errorf("got a sample of process %d, thread %d; want another thread of process %d", sample.PID, sample.TID, pid)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	b.check(t, pid)
}
