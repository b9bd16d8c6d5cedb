package threads

import (
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
	"fulgur/internal/profile/timeline"
	"fulgur/internal/testenv"
)

// at returns the stamp of a record at time n.
func at(n uint64) perfevent.Stamp { return perfevent.Stamp{Time: n} }

// newTestTracker returns a tracker whose recording begins at 100, and a function that
// ends the recording.
func newTestTracker(t *testing.T) (*Tracker, func() *profile.Timeline) {
	t.Helper()
	r, err := timeline.NewRecorder(100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	l := New()
	l.Recorder = r
	return l, func() *profile.Timeline {
		t.Helper()
		if err := l.Forget(1 << 62); err != nil {
			t.Fatal(err)
		}
		line, err := r.Timeline(&profile.Profile{}, 1000, func(s profile.StackID) profile.StackID { return s })
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
}

// No process has these IDs: the limit of Linux is 2^22.
const (
	shell   = 1<<22 + 1
	command = 1<<22 + 2
	worker  = 1<<22 + 3
)

// A thread has all names of its lifetime, including names before its first event and
// inherited ones, and it has an end.
func TestTracker(t *testing.T) {
	l, end := newTestTracker(t)
	for _, r := range []perfevent.Record{
		perfevent.Comm{Stamp: at(50), PID: shell, TID: shell, Comm: "sh"},
		perfevent.Fork{Stamp: at(110), PID: command, PPID: shell, TID: command, PTID: shell},
		perfevent.Comm{Stamp: at(120), PID: command, TID: command, Exec: true, Comm: "tar"},
		perfevent.Fork{Stamp: at(130), PID: command, PPID: command, TID: worker, PTID: command},
		perfevent.Comm{Stamp: at(140), PID: command, TID: worker, Comm: "gzip"},
	} {
		l.HandleRecord(r)
	}
	main := l.Thread(command, command, 115)
	second := l.Thread(command, worker, 150)
	if l.Thread(command, command, 160) != main || second == main {
		t.Errorf("a thread has several IDs, or two threads share one")
	}
	for _, r := range []perfevent.Record{
		perfevent.Comm{Stamp: at(170), PID: command, TID: worker, Comm: "done"},
		perfevent.Exit{Stamp: at(180), PID: command, TID: worker},
		perfevent.Exit{Stamp: at(190), PID: command, TID: command},
	} {
		l.HandleRecord(r)
	}
	if name := l.Name(command, worker, 165); name != "gzip" {
		t.Errorf("got waker %q, want gzip", name)
	}
	line := end()
	names := func(all ...profile.Name) []profile.Name { return all }
	wantProcesses := []profile.Process{{PID: command, Start: 110, End: 190, Names: names(
		profile.Name{At: 110, Name: "sh"}, profile.Name{At: 120, Name: "tar"},
	)}}
	wantThreads := []profile.Thread{
		{TID: command, Start: 110, End: 190, Names: wantProcesses[0].Names},
		{TID: worker, Start: 130, End: 180, Names: names(
			profile.Name{At: 130, Name: "tar"}, profile.Name{At: 140, Name: "gzip"}, profile.Name{At: 170, Name: "done"},
		)},
	}
	if d := cmp.Diff(wantProcesses, line.Processes); d != "" {
		t.Errorf("processes (-want +got):\n%s", d)
	}
	if d := cmp.Diff(wantThreads, line.Threads); d != "" {
		t.Errorf("threads (-want +got):\n%s", d)
	}
	if len(l.threads) != 1 || len(l.processes) != 1 || len(l.ended) != 0 {
		t.Errorf("got %d threads and %d processes tracked, want the shell's", len(l.threads), len(l.processes))
	}
}

// Events from before an ID was reused belong to the previous thread, even if they arrive
// late.
func TestTrackerReuse(t *testing.T) {
	l, end := newTestTracker(t)
	fork := func(when uint64, name string) {
		l.HandleRecord(perfevent.Fork{Stamp: at(when), PID: command, PPID: shell, TID: command, PTID: shell})
		l.HandleRecord(perfevent.Comm{Stamp: at(when + 1), PID: command, TID: command, Exec: true, Comm: name})
	}
	fork(110, "first")
	l.HandleRecord(perfevent.Exit{Stamp: at(120), PID: command, TID: command})
	fork(130, "second")
	second, first := l.Thread(command, command, 140), l.Thread(command, command, 115)
	if first == second {
		t.Fatal("got one thread, want two")
	}
	line := end()
	for id, want := range map[profile.ThreadID]string{first: "first", second: "second"} {
		k := line.Threads[id]
		if got := profile.LastName(k.Names); got != want || profile.LastName(line.Processes[k.Process].Names) != want {
			t.Errorf("thread %d: got name %q of %+v, want %q", id, got, line.Processes[k.Process], want)
		}
	}
	if l.threads[command].prev != nil {
		t.Error("the ended thread is still tracked")
	}
}

// A process continues if its first thread exits because another thread executes a
// program.
func TestTrackerExecOfAnotherThread(t *testing.T) {
	l, end := newTestTracker(t)
	l.Thread(command, command, 110)
	l.HandleRecord(perfevent.Exit{Stamp: at(120), PID: command, TID: command})
	l.HandleRecord(perfevent.Comm{Stamp: at(121), PID: command, TID: command, Exec: true, Comm: "next"})
	line := end()
	if p, k := line.Processes[0], line.Threads[0]; p.End != 0 || k.End != 0 || profile.LastName(p.Names) != "next" {
		t.Errorf("got process %+v, thread %+v; want both running", p, k)
	}
}

// A thread whose start was not seen has its current name. Resident memory comes from the
// kernel.
func TestTrackerUnseen(t *testing.T) {
	l, end := newTestTracker(t)
	pid := os.Getpid()
	l.Thread(pid, pid, 110)
	l.LookAtMemory(lookAtMemoryEvery)
	line := end()
	want := threadName(pid, pid)
	if got := profile.LastName(line.Threads[0].Names); got != want || got == "[unknown]" || line.Threads[0].Start != 0 {
		t.Errorf("got thread %+v, want %q as the name and no start", line.Threads[0], want)
	}
	if len(line.Counters) != 1 || line.Counters[0].Kind != profile.CounterRSS {
		t.Fatalf("got counters %+v, want resident memory", line.Counters)
	}
	var sum int64
	for _, n := range line.Counters[0].Changes {
		sum += n
	}
	if sum < 1<<20 || sum > 1<<36 {
		t.Errorf("got %d bytes resident, want 1 MiB to 64 GiB", sum)
	}
	if name := l.Name(command, worker, 120); name != "[unknown]" {
		t.Errorf("got name %q for a thread that has exited, want [unknown]", name)
	}
}

// A thread that started before the recording keeps its name even if it has exited when
// its event arrives. Meet keeps known names.
func TestMeet(t *testing.T) {
	for _, all := range []bool{false, true} {
		l, end := newTestTracker(t)
		sleeper := exec.Command(testenv.Tool(t, "sleep"), "1000")
		if err := sleeper.Start(); err != nil {
			t.Fatal(err)
		}
		pid := sleeper.Process.Pid
		l.HandleRecord(perfevent.Comm{Stamp: at(50), PID: os.Getpid(), TID: os.Getpid(), Comm: "renamed"})
		pids := []int{pid, os.Getpid()}
		if all {
			pids = nil
		}
		err := l.AddCurrent(pids)
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait() // an error, because it was killed
		if err != nil {
			t.Fatal(err)
		}
		l.Thread(pid, pid, 200)
		l.Thread(os.Getpid(), os.Getpid(), 200)
		line := end()
		for i, want := range []string{"sleep", "renamed"} {
			if got := profile.LastName(line.Threads[i].Names); got != want {
				t.Errorf("thread %d: got name %q, want %q", i, got, want)
			}
			if got := profile.LastName(line.Processes[i].Names); got != want {
				t.Errorf("process %d: got name %q, want %q", i, got, want)
			}
		}
	}
}
