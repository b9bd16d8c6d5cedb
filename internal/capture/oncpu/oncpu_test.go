package oncpu

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/probe"
	"fulgur/internal/capture/source"
	"fulgur/internal/capture/stacks"
	"fulgur/internal/capture/target"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/testenv"
	"fulgur/internal/testenv/stat"
	"fulgur/internal/unwind/unwindtest"
)

// TestMain lets the test binary be its own workload, because the VMs have no compiler.
func TestMain(m *testing.M) {
	if mode := os.Getenv("ONCPU_WORKLOAD"); mode != "" {
		workload(mode)
	}
	os.Exit(m.Run())
}

// load starts a workload and kills it when the test ends.
func load(t *testing.T, mode string) int { return command(t, mode).Process.Pid }

func command(t *testing.T, mode string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ONCPU_WORKLOAD="+mode)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// Large maps, without and with separate threads and CPUs.
var (
	roomy          = probe.Options{RingSize: probe.DefaultRingSize, CountEntries: probe.DefaultCountEntries, SeenEntries: probe.DefaultSeenEntries}
	byThread       = with(func(o *probe.Options) { o.ByThread = true })
	byCPU          = with(func(o *probe.Options) { o.ByCPU = true })
	byThreadAndCPU = with(func(o *probe.Options) { o.ByThread, o.ByCPU = true, true })
)

func with(change func(*probe.Options)) probe.Options {
	o := roomy
	change(&o)
	return o
}

// harness is a source with the samples that it collected.
type harness struct {
	*Source
	store *stacks.Store
	flips int
	first uint64 // samples that records of stacks counted
	// The calls that began and ended sampling. The exact times lie within them.
	began, ended span
}

// span is the time between two points.
type span [2]time.Time

// during returns when f ran.
func during(f func() error) (s span, err error) {
	s[0] = time.Now()
	err = f()
	s[1] = time.Now()
	return s, err
}

func start(t *testing.T, o Options, tg target.Target, rate Rate) *harness {
	t.Helper()
	testenv.Root(t)
	spec, err := perfevent.ParseEvent("cpu-clock")
	if err != nil {
		t.Fatal(err)
	}
	o.MaxDepth, o.Scope = 127, tg.Scope
	o.Specs, o.Rate = []perfevent.Spec{spec}, rate
	cgroup, err := target.OpenCgroup(tg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cgroup.Close)
	o.Cgroup, o.CgroupID = cgroup.FD, cgroup.ID
	s, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := s.Attach(tg); err != nil {
		t.Fatal(err)
	}
	table := process.NewTable(process.Options{})
	t.Cleanup(func() { _ = table.Close() })
	began, err := during(func() error { return source.Start(s.Gate(), s) })
	if err != nil {
		t.Fatal(err)
	}
	return &harness{Source: s, store: stacks.NewStore(table), began: began}
}

func (h *harness) poll(t *testing.T) {
	t.Helper()
	err := h.Ring().ReadTo(h.Ring().Position(), func(r []byte) error {
		if kind, err := stacks.RecordType(r); err != nil {
			return err
		} else if kind == bpf.RecordEvent {
			return h.Counts().AddRecord(r)
		}
		if err := h.store.Add(r); err != nil {
			return err
		}
		if key, value, ok := h.Counts().First(r); ok {
			h.Counts().Add(key, value)
			h.first++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// run polls for d and flips the maps each interval.
func (h *harness) run(t *testing.T, d, every time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
		h.poll(t)
		if err := h.Counts().Flip(); err != nil {
			t.Fatal(err)
		}
		h.flips++
	}
	var err error
	if h.ended, err = during(func() error {
		_, err := source.Stop(h.Gate(), h.Source)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	h.poll(t)
	if err := h.Counts().Finish(); err != nil {
		t.Fatal(err)
	}
}

// counted returns the number of samples, and how many have a known trace.
func (h *harness) counted() (all, known uint64) {
	for key, v := range h.Counts().Total() {
		all += v.Samples()
		if _, ok := h.store.Trace(key.ID); ok {
			known += v.Samples()
		}
	}
	return all, known
}

// Each sample is counted once or counted as lost, while the maps flip as fast as
// possible.
func TestFlipCountsOnce(t *testing.T) {
	for _, test := range []struct {
		name    string
		options Options
	}{
		{"roomy", Options{Options: roomy}},
		{"by thread and CPU", Options{Options: byThreadAndCPU}},
		{"one page of ring, 64 counts", Options{Options: probe.Options{RingSize: 4096, CountEntries: 64, SeenEntries: 64}}},
		{"4 counts, few seen stacks", Options{Options: probe.Options{RingSize: 4096, CountEntries: 4, SeenEntries: 4}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			testenv.Root(t)
			load(t, "deep")
			load(t, "wide")
			h := start(t, test.options, target.Target{}, Rate{Frequency: 4999})
			h.run(t, time.Second, time.Millisecond)
			stats, err := h.Stats()
			if err != nil {
				t.Fatal(err)
			}
			all, known := h.counted()
			t.Logf("%d samples, %d counted, %d of them by records of stacks, %d with a trace, %d stacks, %d flips, losses %+v", stats.Samples, all, h.first, known, len(h.store.Traces), h.flips, stats.Losses)
			if h.first == 0 {
				t.Errorf("none of %d samples was counted by the record of its stack", stats.Samples)
			}
			if all+stats.Losses[profile.LossSamples] != stats.Samples {
				t.Errorf("got %d counted and %d lost, want %d in all", all, stats.Losses[profile.LossSamples], stats.Samples)
			}
			// On a busy machine the reader may be late, which is counted as retries.
			if test.options.RingSize == probe.DefaultRingSize && stats.Losses[profile.LossRetries] == 0 && (stats.Losses[profile.LossSamples] > 0 || known != all) {
				t.Errorf("with default sizes %d samples and %d traces were lost", stats.Losses[profile.LossSamples], all-known)
			}
			if test.options.CountEntries < 64 && stats.Losses[profile.LossOverflows]+stats.Losses[profile.LossSamples] == 0 {
				t.Error("got no overflow of count maps with 4 entries")
			}
		})
	}
}

// All threads of a process are sampled, including those created later, and each sample
// counts once: a process that uses one CPU gets no more samples than its CPU time allows
// while it creates threads.
func TestProcessThreads(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	for _, mode := range []string{"deep", "threads"} {
		t.Run(mode, func(t *testing.T) {
			cmd := command(t, mode)
			pid := cmd.Process.Pid
			testenv.AwaitCPUTime(t, pid, 50*time.Millisecond) // it has created its threads
			// The process runs only while it is sampled.
			if err := unwindtest.Stop(pid); err != nil {
				t.Fatal(err)
			}
			const frequency = 997
			h := start(t, Options{Options: roomy},
				target.Target{Scope: target.Processes, PIDs: []int{pid}}, Rate{Frequency: frequency})
			before, begin := cpuTime(t, pid), time.Now()
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			testenv.AwaitCPUTime(t, pid, time.Second)
			if err := unwindtest.Stop(pid); err != nil {
				t.Fatal(err)
			}
			used, elapsed := cpuTime(t, pid)-before, time.Since(begin)
			h.run(t, 0, 0)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			switches := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			stats, err := h.Stats()
			if err != nil {
				t.Fatal(err)
			}
			all, _ := h.counted()
			const period = time.Second / frequency
			slices := int(switches.Nvcsw + switches.Nivcsw)
			want := stat.Ticks(used, period, slices)
			want.Low -= want.Low/20 + int(stats.Losses[profile.LossSkipped])
			// Interrupts and time stolen by a hypervisor count for the sampling clock,
			// but not always for the process's clock. The elapsed time has both.
			want.High = stat.Ticks(max(used, elapsed), period, slices).High
			want.High += want.High / 20 // threads overlap while they begin and end
			t.Logf("%d samples and %d skipped, want %s for %v of CPU time in %v", all, stats.Losses[profile.LossSkipped], want, used, elapsed)
			want.Check(t, "samples", int(all))
			for key := range h.Counts().Total() {
				if trace, ok := h.store.Trace(key.ID); ok && int(trace.PID) != pid {
					t.Errorf("got a stack of process %d", trace.PID)
				}
			}
		})
	}
}

// cpuTime returns the CPU time that a process has used.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	used, err := testenv.CPUTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	return used
}
