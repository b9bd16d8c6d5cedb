package oncpu

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/bpf"
	"fulgur/internal/perfevent"
	"fulgur/internal/process"
	"fulgur/internal/source/probe"
	"fulgur/internal/stacks"
	"fulgur/internal/target"
	"fulgur/internal/testenv"
)

// TestMain lets the test binary be its own workload: the rig has no compiler.
func TestMain(m *testing.M) {
	if mode := os.Getenv("ONCPU_WORKLOAD"); mode != "" {
		workload(mode)
	}
	os.Exit(m.Run())
}

// load starts a workload and ends it with the test.
func load(t *testing.T, mode string) int {
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
	return cmd.Process.Pid
}

// Sizes of maps that are large enough, alone and with what is told apart.
var (
	roomy          = probe.Options{RingSize: DefaultRingSize, CountEntries: DefaultCountEntries, SeenEntries: DefaultSeenEntries}
	byCPU          = with(func(o *probe.Options) { o.ByCPU = true })
	byThreadAndCPU = with(func(o *probe.Options) { o.ByThread, o.ByCPU = true, true })
)

func with(change func(*probe.Options)) probe.Options {
	o := roomy
	change(&o)
	return o
}

// harness is a source and what it collected.
type harness struct {
	*Source
	store *stacks.Store
	flips int
}

func start(t *testing.T, o Options, tg target.Target, rate Rate) *harness {
	t.Helper()
	testenv.Root(t)
	o.MaxDepth, o.Scope = 127, tg.Scope
	s, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	spec, err := perfevent.ParseEvent("cpu-clock")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(tg, []perfevent.Spec{spec}, rate); err != nil {
		t.Fatal(err)
	}
	table := process.NewTable(process.Options{})
	t.Cleanup(func() { _ = table.Close() })
	if err := s.Enable(); err != nil {
		t.Fatal(err)
	}
	return &harness{Source: s, store: stacks.NewStore(table)}
}

func (h *harness) poll(t *testing.T) {
	t.Helper()
	err := h.Ring().ReadTo(h.Ring().Position(), func(r []byte) error {
		if kind, err := stacks.RecordType(r); err != nil {
			return err
		} else if kind == bpf.OnCPURecordTypeRECORD_EVENT {
			return h.Counts().AddRecord(r)
		}
		return h.store.Add(r)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// run polls and flips every interval for as long as d.
func (h *harness) run(t *testing.T, d, every time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
		h.poll(t)
		if err := h.Counts().Flip(); err != nil {
			t.Fatal(err)
		}
		h.flips++
	}
	if err := h.Disable(); err != nil {
		t.Fatal(err)
	}
	h.poll(t)
	if err := h.Counts().Finish(); err != nil {
		t.Fatal(err)
	}
}

// counted sums samples, and those whose body is known.
func (h *harness) counted() (all, known uint64) {
	for key, v := range h.Counts().Total() {
		all += v.Samples
		if _, ok := h.store.Body(key.ID); ok {
			known += v.Samples
		}
	}
	return all, known
}

// Every sample that the kernel side took is counted once or counted as lost,
// while maps flip as fast as they can.
func TestFlipLosesAndDoublesNothing(t *testing.T) {
	for _, test := range []struct {
		name    string
		options Options
	}{
		{"roomy", Options{Options: roomy}},
		{"by thread and CPU", Options{Options: byThreadAndCPU}},
		{"one page of ring, 64 counts", Options{Options: probe.Options{RingSize: 4096, CountEntries: 64, SeenEntries: 64}}},
		{"4 counts, nothing stays seen", Options{Options: probe.Options{RingSize: 4096, CountEntries: 4, SeenEntries: 4}}},
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
			t.Logf("%d samples, %d counted, %d with a body, %d stacks, %d flips, losses %+v", stats.Samples, all, known, len(h.store.Bodies), h.flips, stats.Losses)
			if stats.Samples == 0 {
				t.Fatal("no samples")
			}
			if all+stats.Losses.Samples != stats.Samples {
				t.Errorf("%d counted and %d lost of %d samples", all, stats.Losses.Samples, stats.Samples)
			}
			// On a busy machine the reader may come too late, which is counted.
			if test.options.RingSize == DefaultRingSize && stats.Losses.Retries == 0 && (stats.Losses.Samples > 0 || known != all) {
				t.Errorf("with default sizes %d samples and %d bodies were lost", stats.Losses.Samples, all-known)
			}
			if test.options.CountEntries < 64 && stats.Losses.Overflows+stats.Losses.Samples == 0 {
				t.Error("count maps of 4 entries never overflowed: the test tests nothing")
			}
		})
	}
}

// All threads of a process are sampled, also those it creates later, and each
// sample once: a process that burns one CPU gets no more samples than its CPU
// time allows, whatever its threads do meanwhile.
func TestProcessThreads(t *testing.T) {
	testenv.Root(t)
	for _, mode := range []string{"deep", "threads"} {
		t.Run(mode, func(t *testing.T) {
			pid := load(t, mode)
			time.Sleep(100 * time.Millisecond)
			h := start(t, Options{Options: roomy},
				target.Target{Scope: target.Processes, PIDs: []int{pid}}, Rate{Frequency: 997})
			before := cpuTime(t, pid)
			h.run(t, 2*time.Second, 50*time.Millisecond)
			used := cpuTime(t, pid) - before
			all, _ := h.counted()
			sampled := time.Duration(all) * time.Second / 997
			t.Logf("%d samples, %v sampled of %v CPU time", all, sampled, used)
			// CPU time is counted in ticks of 10 ms. An emulated machine is late
			// for some of its timer's interrupts, and skips what it is late for.
			slack := 50*time.Millisecond + used/10
			if sampled > used+slack || sampled < used-testenv.Patience(slack) {
				t.Errorf("samples stand for %v, the process used %v", sampled, used)
			}
			for key := range h.Counts().Total() {
				if body, ok := h.store.Body(key.ID); ok && int(body.PID) != pid {
					t.Errorf("stack of process %d", body.PID)
				}
			}
		})
	}
}

// cpuTime returns user and system time of a process, from /proc/PID/stat.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+2:]))
	var ticks int
	for _, i := range []int{11, 12} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
