package stopping

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/linux/tracing"
	"fulgur/internal/testenv"
)

// attached returns a sampler that is attached to a busy process, on this OS thread.
func attached(t *testing.T) (s *Sampler, one *tracee) {
	t.Helper()
	mayTrace(t)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	pid := launch(t, harm(t), "busy", "0")
	awaitState(t, pid, 'R')
	s, err := New(Options{Target: target.Target{Scope: target.Processes, PIDs: []int{pid}}, Period: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, attach(t, s)
}

// attach attaches to the process of s.
func attach(t *testing.T, s *Sampler) *tracee {
	t.Helper()
	p := s.processes[0]
	if err := tracing.Seize(p.pid); err != nil {
		t.Fatal(err)
	}
	return &tracee{process: p, thread: p.threads[0], name: p.threads[0].comm, tid: p.pid, since: time.Now(), running: time.Now()}
}

// letGo waits until the tracee has stopped and was let go. It reports whether a sample was taken.
func letGo(t *testing.T, s *Sampler, one *tracee) (taken bool) {
	t.Helper()
	testenv.Await(t, func() (done bool) {
		taken, done = s.tryFinish(one)
		return done
	}, func() string { return "the thread does not stop" })
	return taken
}

func awaitState(t *testing.T, pid int, want byte) {
	t.Helper()
	testenv.Await(t, func() bool {
		stat, err := procfs.Process(pid).Stat()
		return err == nil && stat.State == want && stat.Comm == "harm"
	}, func() string { return fmt.Sprintf("process %d is not in state %c", pid, want) })
}

func kill(t *testing.T, pid int, signal unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
}

// A signal that arrives while the thread is attached is passed on, and the stop is a sample like others.
func TestPassesSignal(t *testing.T) {
	s, one := attached(t)
	testenv.AwaitCPUTime(t, one.tid, 20*time.Millisecond)
	kill(t, one.tid, unix.SIGTERM)
	if read, _ := s.tryFinishRead(t, one); !read {
		t.Error("the state of the thread was not read")
	}
	awaitState(t, one.tid, 'Z')
}

// tryFinishRead lets the tracee go, and reports whether its state was read.
func (s *Sampler) tryFinishRead(t *testing.T, one *tracee) (read, taken bool) {
	t.Helper()
	s.state.at = 0
	taken = letGo(t, s, one)
	return s.state.at != 0, taken
}

// SIGSTOP stops the process, which stays stopped when a sampler attaches to it, without a sample, until SIGCONT.
func TestKeepsStopped(t *testing.T) {
	s, one := attached(t)
	pid := one.tid
	kill(t, pid, unix.SIGSTOP)
	letGo(t, s, one)
	awaitState(t, pid, 'T')
	one = attach(t, s)
	if err := tracing.Interrupt(pid); err != nil {
		t.Fatal(err)
	}
	if read, taken := s.tryFinishRead(t, one); read || taken {
		t.Error("got a sample of a stopped process")
	}
	awaitState(t, pid, 'T')
	kill(t, pid, unix.SIGCONT)
	awaitState(t, pid, 'R')
	one = attach(t, s)
	if err := tracing.Interrupt(pid); err != nil {
		t.Fatal(err)
	}
	if read, _ := s.tryFinishRead(t, one); !read {
		t.Error("got no sample after SIGCONT")
	}
}

// A process that ends while a sampler is attached is let go.
func TestLetsGoEnded(t *testing.T) {
	s, one := attached(t)
	kill(t, one.tid, unix.SIGKILL)
	if letGo(t, s, one) {
		t.Error("got a sample of a process that has ended")
	}
	awaitState(t, one.tid, 'Z') // for its parent
}
