package oncpu

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
)

// phases runs testdata/phases.c, which runs alone at first, and then with two threads at once.
type phases struct {
	pid int
	in  io.WriteCloser
	out *bufio.Reader

	alone, after, together time.Duration // its own account of CPU time, and of the time with two threads
	switches               int
}

func startPhases(t *testing.T, phase time.Duration) *phases {
	t.Helper()
	cmd := exec.Command(testenv.Compile(t, "phases", "gcc", "-O1", "-pthread", "testdata/phases.c"), fmt.Sprint(phase.Nanoseconds()))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	p := &phases{pid: cmd.Process.Pid, in: in, out: bufio.NewReader(out)}
	if line, err := p.out.ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	return p
}

// run runs both phases.
func (p *phases) run(t *testing.T) {
	t.Helper()
	if _, err := p.in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscan(p.out, &p.alone, &p.after, &p.together, &p.switches); err != nil {
		t.Fatal(err)
	}
}

// newCgroup puts a process into a cgroup of its own, and returns its directory.
func newCgroup(t *testing.T, pid int) string {
	t.Helper()
	mounted, err := procfs.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounted {
		if m.FSType != "cgroup2" || m.Root != "/" {
			continue
		}
		dir, err := os.MkdirTemp(m.Mountpoint, "fulgur-parallel-") //nolint:usetesting // a cgroup
		if err != nil {
			testenv.Skip(t, "needs cgroups to be writable: %v", err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	testenv.Unsupported(t, "no cgroups of version 2 are mounted")
	return ""
}

// sum is a sum of samples.
type sum struct{ samples, weight, elapsed uint64 }

// parallel returns how many samples saw two running threads. Each of them lacks half a period, rounded.
func (s sum) parallel(period time.Duration) int {
	return int((2*(s.weight-s.elapsed) + uint64(period)/2) / uint64(period))
}

// Samples are divided by the number of threads of the target that run, and of no others, for each kind of
// target. Other programs keep the CPUs busy meanwhile.
func TestParallelism(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	const frequency = 997
	const period = time.Second / frequency
	for name, of := range map[string]func(t *testing.T, pid int) target.Target{
		"process": func(_ *testing.T, pid int) target.Target {
			return target.Target{Scope: target.Processes, PIDs: []int{pid}}
		},
		"cgroup": func(t *testing.T, pid int) target.Target {
			return target.Target{Scope: target.Cgroup, CgroupPath: newCgroup(t, pid)}
		},
		"thread": func(_ *testing.T, pid int) target.Target {
			return target.Target{Scope: target.Threads, TIDs: []int{pid}}
		},
		"system": func(*testing.T, int) target.Target { return target.Target{} },
	} {
		t.Run(name, func(t *testing.T) {
			p := startPhases(t, 400*time.Millisecond)
			tg := of(t, p.pid)
			for range 2 {
				load(t, "deep")
			}
			h := start(t, Options{Options: byThread, Parallelism: true}, tg, Rate{Frequency: frequency})
			p.run(t)
			h.run(t, 0, 0)
			stats, err := h.Stats()
			if err != nil {
				t.Fatal(err)
			}
			var main, workers, rest sum
			for key, v := range h.Counts().Total() {
				to := &rest
				switch trace, ok := h.store.Trace(key.ID); {
				case int(key.TID) == p.pid:
					to = &main
				case ok && int(trace.PID) == p.pid:
					to = &workers
				}
				to.samples, to.weight, to.elapsed = to.samples+v.Samples(), to.weight+v[Weight], to.elapsed+v[Elapsed]
			}
			skipped := int(stats.Losses[profile.LossSkipped])
			t.Logf("alone %v and then %v, together %v, %d switches; main %+v, workers %+v, rest %+v, %d skipped", p.alone, p.after, p.together, p.switches, main, workers, rest, skipped)

			if name == "system" {
				// Every other thread counts, too: while both run, nothing else does.
				want := stat.Ticks(2*p.together, period, 2*p.switches)
				if n := workers.parallel(period); n < want.Low-want.Low/20-skipped {
					t.Errorf("%d of %d samples of the threads have company, want %d or more", n, workers.samples, want.Low)
				}
				return
			}
			alone := stat.Ticks(p.alone, period, p.switches)
			if int(main.samples) < alone.Low-alone.Low/20-skipped {
				t.Errorf("got %d samples of the main thread, want %d or more", main.samples, alone.Low)
			}
			if n, most := main.parallel(period), stat.Ticks(p.after, period, p.switches).High; n > most {
				t.Errorf("%d of %d samples of the main thread have company, which ran for %v beside others, want %d or fewer", n, main.samples, p.after, most)
			}
			if name == "thread" {
				if main.elapsed != main.weight || workers.samples > 0 {
					t.Errorf("got main thread %+v and other threads %+v, want only the main thread, always alone", main, workers)
				}
				return
			}
			want := stat.Ticks(2*p.together, period, 2*p.switches)
			want.Low -= want.Low/20 + skipped // as in TestProcessThreads
			want.High += want.High / 20
			want.Check(t, "samples of two threads at once", workers.parallel(period))
		})
	}
}
